// The sweep through KafkaJS; see tests/support/interop/sweep.py.
"use strict";

const {
  AclOperationTypes,
  AclPermissionTypes,
  AclResourceTypes,
  CompressionTypes,
  ConfigResourceTypes,
  Kafka,
  ResourcePatternTypes,
  logLevel,
} = require("kafkajs");

const WITHIN_MS = 60_000;
const kafka = new Kafka({
  brokers: [process.argv[2]],
  logLevel: logLevel.ERROR,
  retry: { initialRetryTime: 20, retries: 20 },
});

const numbers = (prefix, count) => Array.from({ length: count }, (_, n) => `${prefix}${n}`);
const messages = (values) =>
  values.map((value) => ({ key: "k", value, partition: 0, headers: { h: "x" } }));

async function until(isSo) {
  const deadline = Date.now() + WITHIN_MS;
  while (!isSo()) {
    if (Date.now() > deadline) throw new Error(`it does not come about: ${isSo}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function withClient(client, work) {
  await client.connect();
  try {
    return await work(client);
  } finally {
    await client.disconnect();
  }
}

const member = (groupId) =>
  kafka.consumer({ groupId, heartbeatInterval: 200, maxWaitTimeInMs: 100 });

const actions = {
  async produce() {
    return withClient(kafka.producer(), async (producer) => {
      const [sent] = await producer.send({
        topic: "written",
        compression: CompressionTypes.GZIP,
        messages: messages(numbers("", 100).map((number) => number.padEnd(100))),
      });
      return { first: Number(sent.baseOffset) };
    });
  },

  async idempotent() {
    return withClient(kafka.producer({ idempotent: true }), async (producer) => {
      for (const number of numbers("", 20)) {
        await producer.send({ topic: "once", messages: messages([number]) });
      }
      return {};
    });
  },

  async transaction() {
    const options = { transactionalId: "booking-1", idempotent: true, maxInFlightRequests: 1 };
    await withClient(kafka.producer(options), async (producer) => {
      const send = (transaction, values) =>
        transaction.send({ topic: "booked", messages: messages(values) });
      const first = await producer.transaction();
      await send(first, numbers("c", 10));
      await first.sendOffsets({
        consumerGroupId: "booking",
        topics: [{ topic: "transfers", partitions: [{ partition: 0, offset: "7" }] }],
      });
      await first.commit();
      const second = await producer.transaction();
      await send(second, numbers("a", 10));
      await second.abort();
      const third = await producer.transaction();
      await send(third, ["d0"]);
      await third.commit();
    });
    const read = [];
    await withClient(member("nobody"), async (consumer) => {
      await consumer.subscribe({ topics: ["booked"], fromBeginning: true });
      await consumer.run({
        eachMessage: async ({ message }) => read.push(message.value.toString()),
      });
      await until(() => read.includes("d0"));
    });
    return { read };
  },

  async group() {
    const read = [];
    await withClient(member("readers"), async (consumer) => {
      const next = {};
      await consumer.subscribe({ topics: ["events"], fromBeginning: true });
      await consumer.run({
        autoCommit: false,
        eachMessage: async ({ partition, message }) => {
          read.push(message.value.toString());
          next[partition] = String(Number(message.offset) + 1);
        },
      });
      await until(() => read.length >= 100);
      await consumer.commitOffsets(
        Object.entries(next).map(([partition, offset]) => ({
          topic: "events",
          partition: Number(partition),
          offset,
        })),
      );
    });
    return { read: read.sort() };
  },

  async rebalance() {
    const sizes = [];
    const assigned = new Map();
    const join = async (consumer) => {
      consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
        assigned.set(consumer, (payload.memberAssignment.events || []).length),
      );
      await consumer.subscribe({ topics: ["events"], fromBeginning: true });
      await consumer.run({ eachMessage: async () => {} });
    };
    const one = member("pair");
    const two = member("pair");
    await withClient(one, async () => {
      await join(one);
      await until(() => assigned.get(one) === 4);
      sizes.push([4]);
      await withClient(two, async () => {
        await join(two);
        await until(() => assigned.get(one) === 2 && assigned.get(two) === 2);
        sizes.push([2, 2]);
      });
      await until(() => assigned.get(one) === 4);
      sizes.push([4]);
    });
    return { sizes };
  },

  async delete_records() {
    return withClient(kafka.admin(), async (admin) => {
      // KafkaJS looks for the leader before it has asked for it: this asks.
      await admin.fetchTopicOffsets("old");
      await admin.deleteTopicRecords({
        topic: "old",
        partitions: [{ partition: 0, offset: "12" }],
      });
      const [{ low }] = await admin.fetchTopicOffsets("old");
      return { low: Number(low), earliest: Number(low) };
    });
  },

  async configs() {
    return withClient(kafka.admin(), async (admin) => {
      const topic = { type: ConfigResourceTypes.TOPIC, name: "configured" };
      const retention = async () => {
        const { resources } = await admin.describeConfigs({
          includeSynonyms: false,
          resources: [topic],
        });
        return resources[0].configEntries.find((entry) => entry.configName === "retention.ms")
          .configValue;
      };
      const before = await retention();
      await admin.alterConfigs({
        resources: [{ ...topic, configEntries: [{ name: "retention.ms", value: "12345" }] }],
      });
      return { before, after: await retention() };
    });
  },

  async acls() {
    return withClient(kafka.admin(), async (admin) => {
      const prefixed = {
        resourceType: AclResourceTypes.TOPIC,
        resourceName: "orders-",
        resourcePatternType: ResourcePatternTypes.PREFIXED,
      };
      const allow = (principal, operation) => ({
        ...prefixed,
        principal,
        host: "*",
        operation,
        permissionType: AclPermissionTypes.ALLOW,
      });
      const any = {
        ...prefixed,
        operation: AclOperationTypes.ANY,
        permissionType: AclPermissionTypes.ANY,
      };
      const principals = async () => {
        const { resources } = await admin.describeAcls(any);
        return resources.flatMap(({ acls }) => acls.map((acl) => acl.principal)).sort();
      };
      await admin.createAcls({
        acl: [
          allow("User:ann", AclOperationTypes.READ),
          allow("User:bob", AclOperationTypes.WRITE),
        ],
      });
      const created = await principals();
      await admin.deleteAcls({ filters: [{ ...any, principal: "User:bob" }] });
      return { created, left: await principals() };
    });
  },
};

(async () => {
  for (const [action, work] of Object.entries(actions)) {
    const line = { action };
    try {
      line.seen = await work();
    } catch (error) {
      console.error(error);
      line.failed = String(error);
    }
    console.log(JSON.stringify(line));
  }
})();
