"""Command lines of Kafka's tools, in the order in which they run on a cluster of three brokers."""

from __future__ import annotations

from typing import NamedTuple


class Line(NamedTuple):
    """A command line and its standard input.

    Attributes
    ----------
    settles : bool
        Whether to wait for the state of the cluster to spread before the next line.
    """

    text: str
    stdin: str = ""
    settles: bool = False


FILES = {
    "delete.json": (
        '{"version": 1, "partitions": [{"topic": "words", "partition": 0, "offset": 2}]}'
    ),
    "delete-far.json": (
        '{"version": 1, "partitions": [{"topic": "words", "partition": 0, "offset": 999}]}'
    ),
    "topics.json": '{"version": 1, "topics": [{"topic": "moved"}]}',
    "move.json": (
        '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [2, 1]}]}'
    ),
    "order.json": (
        '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [1, 2]}]}'
    ),
    "grow.json": (
        '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [0, 1, 2]}]}'
    ),
    "wrong.json": (
        '{"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [0, 9]}]}'
    ),
    "unknown.json": (
        '{"version": 1, "partitions": [{"topic": "none", "partition": 0, "replicas": [0, 1]}]}'
    ),
    "damaged.json": '{"version": 1',
    "election.json": '{"partitions": [{"topic": "moved", "partition": 0}]}',
    "client.properties": "request.timeout.ms=20000\n",
}
"""Files that the command lines use."""

_TOPICS = "kafka-topics --bootstrap-server {b} "
_CONFIGS = "kafka-configs --bootstrap-server {b} "
_GROUPS = "kafka-consumer-groups --bootstrap-server {b} "
_OFFSETS = "kafka-get-offsets --bootstrap-server {b} "
_MOVE = "kafka-reassign-partitions --bootstrap-server {b} "
_ELECT = "kafka-leader-election --bootstrap-server {b} "
_CONSUME = "kafka-console-consumer --bootstrap-server {b} "
_PRODUCE = "kafka-console-producer --bootstrap-server {b} "
_TRANSACTIONS = "kafka-transactions --bootstrap-server {b} "

CREATION = [
    Line(_TOPICS + "--list"),
    Line(_TOPICS + "--create --topic words --partitions 2 --replication-factor 3", settles=True),
    Line(_TOPICS + "--create --topic words --partitions 2 --replication-factor 3"),
    Line(_TOPICS + "--create --if-not-exists --topic words --partitions 2"),
    Line(
        _TOPICS + "--create --topic small --replica-assignment 0:1,1:2 --config retention.ms=9000"
    ),
    Line(_TOPICS + "--create --topic moved --replica-assignment 0:1", settles=True),
    Line(_TOPICS + "--create --topic defaults", settles=True),
    Line(_TOPICS + "--create --topic 'bad name' --partitions 1"),
    Line(_TOPICS + "--create --topic a.b --partitions 1", settles=True),
    Line(_TOPICS + "--create --topic a_b --partitions 1"),
    Line(_TOPICS + "--create --topic many --replication-factor 9"),
    Line(_TOPICS + "--create --topic none --partitions 0"),
    Line(_TOPICS + "--create --topic none --partitions 1 --config no.such.key=1"),
    Line(_TOPICS + "--create --topic none --partitions 1 --config retention.ms=x"),
    Line(_TOPICS + "--create --topic none --replica-assignment 0:0"),
    Line(_TOPICS + "--create --topic none --replica-assignment 0:7"),
    Line(_TOPICS + "--create"),
    Line(
        _TOPICS + "--create --topic compact --partitions 1 --config cleanup.policy=compact",
        settles=True,
    ),
    Line(_TOPICS + "--list"),
    Line(_TOPICS + "--list --exclude-internal"),
    Line(_TOPICS + "--list --topic 'a.*'"),
    Line(_TOPICS + "--describe --topic small"),
    Line(_TOPICS + "--describe --topic moved"),
    Line(_TOPICS + "--describe --topic none"),
    Line(_TOPICS + "--describe --if-exists --topic none"),
    Line(_TOPICS + "--describe --topics-with-overrides"),
    Line(_TOPICS + "--describe --under-replicated-partitions"),
    Line(_TOPICS + "--describe --unavailable-partitions"),
    Line(_TOPICS + "--describe --under-min-isr-partitions"),
    Line(_TOPICS + "--describe --at-min-isr-partitions"),
    Line(_TOPICS + "--describe --topic-id BBBBBBBBBBBBBBBBBBBBBA"),
    Line(_TOPICS + "--alter --topic small --partitions 3", settles=True),
    Line(_TOPICS + "--alter --topic small --partitions 2"),
    Line(_TOPICS + "--alter --topic none --partitions 2"),
    Line(_TOPICS + "--alter --if-exists --topic none --partitions 2"),
    Line(
        _TOPICS + "--alter --topic moved --partitions 2 --replica-assignment 0:1,1:2", settles=True
    ),
    Line(_TOPICS + "--describe --topic moved"),
    Line(_TOPICS + "--delete --topic none"),
    Line(_TOPICS + "--delete --if-exists --topic none"),
    Line(_TOPICS + "--delete --topic a.b", settles=True),
    Line(_TOPICS + "--bogus"),
]

RECORDS = [
    Line(
        _PRODUCE + "--topic words --property parse.key=true --property key.separator=:",
        "a:1\nb:2\na:3\nc:4\n",
    ),
    Line(_PRODUCE + "--topic compact --reader-property parse.key=true", "a\t1\nb\t2\n"),
    Line(
        _PRODUCE + "--topic compact --compression-codec zstd --request-required-acks all",
        "one\ntwo\n",
    ),
    Line(_PRODUCE + "--topic defaults --compression-codec gzip --max-block-ms 20000", "x\n"),
    Line(_PRODUCE + "--topic compact --compression-codec none --sync", "three\n"),
    Line(_PRODUCE + "--topic words", ""),
    Line(_PRODUCE, ""),
    Line(
        _PRODUCE + "--topic words --property parse.key=true --property key.separator=:", "nokey\n"
    ),
    Line(
        _CONSUME + "--topic words --from-beginning --max-messages 4 --timeout-ms 10000"
        " --group readers"
    ),
    Line(_CONSUME + "--topic compact --from-beginning --max-messages 2 --property print.key=true"),
    Line(
        _CONSUME + "--topic compact --partition 0 --offset 1 --max-messages 1"
        " --formatter-property print.offset=true"
    ),
    Line(
        _CONSUME + "--topic compact --partition 0 --offset earliest --max-messages 1"
        " --formatter-property print.partition=true --formatter-property print.headers=true"
    ),
    Line(_CONSUME + "--topic compact --partition 0 --offset latest --timeout-ms 500"),
    Line(_CONSUME + "--topic compact --partition 9 --offset 0 --timeout-ms 500"),
    Line(
        _CONSUME + "--topic words --isolation-level read_committed --from-beginning"
        " --max-messages 4 --timeout-ms 10000 --group committed"
    ),
    Line(_CONSUME + "--include 'wor.*' --from-beginning --max-messages 4 --group pattern"),
    Line(
        _CONSUME + "--topic words --group new --consumer-property group.protocol=consumer"
        " --from-beginning --max-messages 4"
    ),
    Line(_CONSUME + "--topic words --max-messages 1 --timeout-ms 400 --group readers"),
    Line(_CONSUME),
    Line(_OFFSETS + "--topic compact"),
    Line(_OFFSETS + "--topic compact --time latest"),
    Line(_OFFSETS + "--topic compact --time earliest"),
    Line(_OFFSETS + "--topic compact --time -1"),
    Line(_OFFSETS + "--topic compact --time -2"),
    Line(_OFFSETS + "--topic defaults --time max-timestamp"),
    Line(_OFFSETS + "--topic compact --time earliest-local"),
    Line(_OFFSETS + "--topic compact --time latest-tiered"),
    Line(_OFFSETS + "--topic compact --time earliest-pending-upload"),
    Line(_OFFSETS + "--topic compact --time 0"),
    Line(_OFFSETS + "--topic compact --time 99999999999999"),
    Line(_OFFSETS + "--topic none"),
    Line(_OFFSETS + "--topic compact --partitions 0,9"),
    Line(_OFFSETS + "--topic-partitions compact:0-2,small:0"),
    Line(_OFFSETS + "--exclude-internal-topics --topic 'compact|moved'"),
    Line("kafka-delete-records --bootstrap-server {b} --offset-json-file {home}/delete.json"),
    Line("kafka-delete-records --bootstrap-server {b} --offset-json-file {home}/delete-far.json"),
    Line("kafka-delete-records --bootstrap-server {b} --offset-json-file {home}/damaged.json"),
    Line("kafka-delete-records --bootstrap-server {b} --offset-json-file {home}/none.json"),
]

GROUPS = [
    Line(_GROUPS + "--list"),
    Line(_GROUPS + "--list --state"),
    Line(_GROUPS + "--list --state Empty"),
    Line(_GROUPS + "--list --type"),
    Line(_GROUPS + "--list --type classic"),
    Line(_GROUPS + "--list --state nonsense"),
    Line(_GROUPS + "--describe --group readers"),
    Line(_GROUPS + "--describe --group readers --members"),
    Line(_GROUPS + "--describe --group readers --members --verbose"),
    Line(_GROUPS + "--describe --group readers --state"),
    Line(_GROUPS + "--describe --group new"),
    Line(_GROUPS + "--describe --group new --state"),
    Line(_GROUPS + "--describe --group new --members"),
    Line(_GROUPS + "--describe --group none"),
    Line(_GROUPS + "--describe --group none --state"),
    Line(_GROUPS + "--reset-offsets --group readers --topic words --to-earliest --dry-run"),
    Line(_GROUPS + "--reset-offsets --group readers --topic words --to-earliest --execute"),
    Line(_GROUPS + "--reset-offsets --group readers --topic words:0 --to-offset 1 --execute"),
    Line(_GROUPS + "--reset-offsets --group readers --topic words:0 --shift-by 1 --execute"),
    Line(_GROUPS + "--reset-offsets --group readers --topic words:0 --shift-by -99 --execute"),
    Line(_GROUPS + "--reset-offsets --group readers --topic words --to-latest --export --dry-run"),
    Line(_GROUPS + "--reset-offsets --group readers --all-topics --to-current --execute"),
    Line(
        _GROUPS + "--reset-offsets --group readers --topic words"
        " --to-datetime 2020-01-01T00:00:00.000 --execute"
    ),
    Line(_GROUPS + "--reset-offsets --group none --topic words --to-earliest --execute"),
    Line(_GROUPS + "--reset-offsets --group readers --topic none --to-earliest --execute"),
    Line(_GROUPS + "--reset-offsets --group new --topic words --to-earliest --execute"),
    Line(_GROUPS + "--delete-offsets --group readers --topic words:1"),
    Line(_GROUPS + "--delete-offsets --group none --topic words"),
    Line(_GROUPS + "--delete --group committed"),
    Line(_GROUPS + "--delete --group none"),
    Line(_GROUPS + "--validate-regex 'a.*'"),
    Line(_GROUPS + "--describe --all-groups --state"),
    Line("kafka-groups --bootstrap-server {b} --list"),
    Line("kafka-groups --bootstrap-server {b} --list --consumer"),
    Line("kafka-groups --bootstrap-server {b} --list --group-type classic"),
    Line("kafka-groups --bootstrap-server {b} --list --protocol consumer"),
    Line("kafka-groups --bootstrap-server {b} --list --share"),
    Line("kafka-share-groups --bootstrap-server {b} --list"),
    Line("kafka-share-groups --bootstrap-server {b} --describe --group none"),
    Line("kafka-streams-groups --bootstrap-server {b} --list"),
    Line(
        "kafka-streams-application-reset --bootstrap-server {b} --application-id app"
        " --input-topics words --dry-run"
    ),
]

CONFIGURATIONS = [
    Line(_CONFIGS + "--describe --entity-type topics --entity-name small"),
    Line(_CONFIGS + "--describe --topic moved"),
    Line(_CONFIGS + "--describe --topic none"),
    Line(
        _CONFIGS + "--alter --topic words --add-config retention.ms=1000,segment.bytes=2000000",
        settles=True,
    ),
    Line(_CONFIGS + "--describe --topic words"),
    Line(_CONFIGS + "--alter --topic words --delete-config retention.ms", settles=True),
    Line(_CONFIGS + "--alter --topic words --delete-config retention.ms"),
    Line(_CONFIGS + "--alter --topic words --add-config no.such.key=1"),
    Line(_CONFIGS + "--alter --topic words --add-config retention.ms=x"),
    Line(
        _CONFIGS + "--alter --topic words --add-config cleanup.policy=[compact,delete]",
        settles=True,
    ),
    Line(_CONFIGS + "--describe --topic words"),
    Line(_CONFIGS + "--alter --topic none --add-config retention.ms=1"),
    Line(_CONFIGS + "--describe --entity-type brokers --entity-name 0"),
    Line(_CONFIGS + "--describe --broker-defaults"),
    Line(_CONFIGS + "--alter --broker 1 --add-config log.cleaner.backoff.ms=1000", settles=True),
    Line(_CONFIGS + "--describe --broker 1"),
    Line(_CONFIGS + "--alter --broker 1 --delete-config log.cleaner.backoff.ms", settles=True),
    Line(
        _CONFIGS + "--alter --broker-defaults --add-config log.retention.ms=777777777", settles=True
    ),
    Line(_CONFIGS + "--describe --broker-defaults"),
    Line(_CONFIGS + "--alter --broker-defaults --delete-config log.retention.ms", settles=True),
    Line(_CONFIGS + "--alter --broker 1 --add-config listeners=x"),
    Line(_CONFIGS + "--alter --broker 9 --add-config log.cleaner.backoff.ms=1000"),
    Line(_CONFIGS + "--describe --broker 9"),
    Line(
        _CONFIGS + "--alter --user ann --add-config"
        " 'SCRAM-SHA-512=[iterations=4096,password=secret]'",
        settles=True,
    ),
    Line(_CONFIGS + "--describe --user ann"),
    Line(_CONFIGS + "--describe --entity-type users"),
    Line(_CONFIGS + "--alter --user ann --add-config SCRAM-SHA-256=[iterations=1,password=x]"),
    Line(_CONFIGS + "--alter --user ann --delete-config SCRAM-SHA-512", settles=True),
    Line(_CONFIGS + "--alter --user ann --delete-config SCRAM-SHA-512"),
    Line(
        _CONFIGS + "--alter --user ann --add-config producer_byte_rate=1024,"
        "consumer_byte_rate=2048",
        settles=True,
    ),
    Line(_CONFIGS + "--describe --user ann"),
    Line(
        _CONFIGS + "--alter --user ann --client app --add-config request_percentage=50",
        settles=True,
    ),
    Line(_CONFIGS + "--describe --user ann --client app"),
    Line(
        _CONFIGS + "--alter --user-defaults --add-config controller_mutation_rate=5", settles=True
    ),
    Line(_CONFIGS + "--describe --user-defaults"),
    Line(_CONFIGS + "--alter --client-defaults --add-config producer_byte_rate=5", settles=True),
    Line(_CONFIGS + "--describe --entity-type clients"),
    Line(_CONFIGS + "--alter --ip 1.2.3.4 --add-config connection_creation_rate=7", settles=True),
    Line(_CONFIGS + "--describe --entity-type ips"),
    Line(
        _CONFIGS + "--alter --user ann --delete-config producer_byte_rate,consumer_byte_rate",
        settles=True,
    ),
    Line(_CONFIGS + "--alter --user ann --add-config producer_byte_rate=0"),
    Line(_CONFIGS + "--alter --ip 1.2.3.4 --add-config producer_byte_rate=1"),
    Line(
        _CONFIGS + "--alter --group readers --add-config consumer.session.timeout.ms=50000",
        settles=True,
    ),
    Line(_CONFIGS + "--describe --group readers"),
    Line(_CONFIGS + "--describe --entity-type groups"),
    Line(_CONFIGS + "--alter --group readers --delete-config consumer.session.timeout.ms"),
    Line(_CONFIGS + "--describe --client-metrics none"),
    Line("kafka-client-metrics --bootstrap-server {b} --list"),
    Line(_CONFIGS + "--alter --entity-type topics"),
]

CLUSTER = [
    Line(_MOVE + "--generate --topics-to-move-json-file {home}/topics.json --broker-list 9"),
    Line(_MOVE + "--execute --reassignment-json-file {home}/move.json", settles=True),
    Line(_MOVE + "--verify --reassignment-json-file {home}/move.json"),
    Line(_TOPICS + "--describe --topic moved"),
    Line(_MOVE + "--list"),
    Line(_MOVE + "--execute --reassignment-json-file {home}/order.json", settles=True),
    Line(_ELECT + "--election-type preferred --topic moved --partition 0", settles=True),
    Line(_ELECT + "--election-type preferred --topic moved --partition 0"),
    Line(_ELECT + "--election-type preferred --path-to-json-file {home}/election.json"),
    Line(_ELECT + "--election-type unclean --topic moved --partition 0"),
    Line(_ELECT + "--election-type preferred --topic none --partition 0"),
    Line(_ELECT + "--election-type preferred --topic moved"),
    Line(
        _MOVE + "--execute --reassignment-json-file {home}/grow.json --throttle 1000000"
        " --additional",
        settles=True,
    ),
    Line(_MOVE + "--verify --reassignment-json-file {home}/grow.json", settles=True),
    Line(_CONFIGS + "--describe --topic moved"),
    Line(_CONFIGS + "--describe --broker 0"),
    Line(_TOPICS + "--describe --topic moved"),
    Line(
        _MOVE + "--execute --reassignment-json-file {home}/move.json"
        " --disallow-replication-factor-change"
    ),
    Line(_MOVE + "--execute --reassignment-json-file {home}/wrong.json"),
    Line(_MOVE + "--execute --reassignment-json-file {home}/unknown.json"),
    Line(_MOVE + "--execute --reassignment-json-file {home}/damaged.json"),
    Line(_MOVE + "--cancel --reassignment-json-file {home}/move.json"),
    Line(_MOVE + "--verify --reassignment-json-file {home}/unknown.json"),
    Line("kafka-log-dirs --bootstrap-server {b} --describe --topic-list moved"),
    Line("kafka-log-dirs --bootstrap-server {b} --describe --broker-list 1 --topic-list compact"),
    Line("kafka-log-dirs --bootstrap-server {b} --describe --broker-list 9"),
    Line("kafka-metadata-quorum --bootstrap-server {b} describe --status"),
    Line("kafka-metadata-quorum --bootstrap-server {b} describe --replication"),
    Line("kafka-features --bootstrap-server {b} describe"),
    Line("kafka-features --bootstrap-server {b} upgrade --feature group.version=1"),
    Line("kafka-features --bootstrap-server {b} upgrade --feature group.version=9"),
    Line("kafka-features --bootstrap-server {b} downgrade --feature no.such.feature=0"),
    Line("kafka-cluster cluster-id --bootstrap-server {b}"),
    Line("kafka-cluster list-endpoints --bootstrap-server {b}"),
    Line("kafka-cluster list-endpoints --bootstrap-server {b} --include-fenced-brokers"),
    Line("kafka-cluster unregister --bootstrap-server {b} --id 99"),
    Line("kafka-broker-api-versions --bootstrap-server {b}"),
    Line("kafka-acls --bootstrap-server {b} --list"),
    Line(
        "kafka-acls --bootstrap-server {b} --add --allow-principal User:ann --operation read"
        " --topic words"
    ),
    Line(
        "kafka-delegation-tokens --bootstrap-server {b} --describe"
        " --command-config {home}/client.properties"
    ),
    Line(_TRANSACTIONS + "list"),
    Line(_TRANSACTIONS + "describe --transactional-id none"),
    Line(_TRANSACTIONS + "describe-producers --topic words --partition 0"),
    Line(_TRANSACTIONS + "find-hanging --topic words"),
    Line(_TRANSACTIONS + "abort --topic words --partition 0 --start-offset 0"),
    Line(_TRANSACTIONS + "forceTerminateTransaction --transactional-id none"),
    Line(_TOPICS + "--delete --topic small,moved", settles=True),
    Line(_TOPICS + "--list"),
]

LINES = [*CREATION, *RECORDS, *GROUPS, *CONFIGURATIONS, *CLUSTER]

_WORDS = "other words in an error message"
_SYNONYM = "the default of log.retention.hours is a synonym here"
_MIN_ISR = "Kafka sets min.insync.replicas with the feature eligible.leader.replicas.version"
_CONTROLLER = "broker 0 is the controller, without a metadata log"
_NOT_SERVED = "an API that is not served"

DIFFERENCES = {
    _TOPICS + "--create --topic 'bad name' --partitions 1": _WORDS,
    _TOPICS + "--create --topic many --replication-factor 9": _WORDS,
    _PRODUCE + "--topic compact --compression-codec none --sync": _WORDS,
    _GROUPS + "--delete --group none": "a group ends with its last offset here",
    "kafka-share-groups --bootstrap-server {b} --describe --group none": _NOT_SERVED,
    _CONFIGS + "--describe --entity-type topics --entity-name small": _SYNONYM,
    _CONFIGS + "--describe --topic words": _SYNONYM,
    _CONFIGS + "--alter --topic words --add-config no.such.key=1": _WORDS,
    _CONFIGS + "--alter --topic words --add-config retention.ms=x": _WORDS,
    _CONFIGS + "--describe --broker-defaults": _MIN_ISR,
    _CONFIGS + "--alter --broker 1 --add-config listeners=x": _WORDS,
    "kafka-metadata-quorum --bootstrap-server {b} describe --status": _CONTROLLER,
    "kafka-metadata-quorum --bootstrap-server {b} describe --replication": _CONTROLLER,
    "kafka-features --bootstrap-server {b} describe": "fewer features",
    "kafka-features --bootstrap-server {b} upgrade --feature group.version=9": _CONTROLLER,
    "kafka-features --bootstrap-server {b} downgrade --feature no.such.feature=0": _WORDS,
    "kafka-broker-api-versions --bootstrap-server {b}": "fewer APIs and versions",
    "kafka-delegation-tokens --bootstrap-server {b} --describe"
    " --command-config {home}/client.properties": _NOT_SERVED,
}
"""Command lines whose output differs from Kafka's, and why."""
