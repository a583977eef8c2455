"""Records, and data inside records and requests, of Kafka 3.9.2 and 4.4.0.

Written by `make messages` from Kafka's definitions; do not edit. The form is told in
`logstore.messages.schema`.
"""

from __future__ import annotations

DEFINITIONS = {
    "AbortTransactionRecord": """\
AbortTransactionRecord metadata 25 0 flexible=0+
  Reason string 0+ null=0+ tag=0:0+ default=null
""",
    "AbortedTxn": """\
AbortedTxn data - 0
  ProducerId int64 0+
  FirstOffset int64 0+
  LastOffset int64 0+
  LastStableOffset int64 0+
""",
    "AccessControlEntryRecord": """\
AccessControlEntryRecord metadata 18 0 flexible=0+
  Id uuid 0+
  ResourceType int8 0+
  ResourceName string 0+
  PatternType int8 0+
  Principal string 0+
  Host string 0+
  Operation int8 0+
  PermissionType int8 0+
""",
    "BeginTransactionRecord": """\
BeginTransactionRecord metadata 23 0 flexible=0+
  Name string 0+ null=0+ tag=0:0+ default=null
""",
    "BrokerRegistrationChangeRecord": """\
BrokerRegistrationChangeRecord metadata 17 0-3 flexible=0+
  BrokerId int32 0+
  BrokerEpoch int64 0+
  Fenced int8 0+ tag=0:0+
  InControlledShutdown int8 1+ tag=1:1+
  LogDirs []uuid 2+ tag=2:2+
  CordonedLogDirs []uuid 3+ null=3+ tag=3:3+ default=null
""",
    "ClearElrRecord": """\
ClearElrRecord metadata 28 0 flexible=0+
  TopicName string 0+
""",
    "ClientQuotaRecord": """\
ClientQuotaRecord metadata 14 0 flexible=0+
  Entity []EntityData 0+
  Key string 0+
  Value float64 0+
  Remove bool 0+
EntityData
  EntityType string 0+
  EntityName string 0+ null=0+
""",
    "ConfigRecord": """\
ConfigRecord metadata 4 0 flexible=0+
  ResourceType int8 0+
  ResourceName string 0+
  Name string 0+
  Value string 0+ null=0+
""",
    "ConsumerGroupCurrentMemberAssignmentKey": """\
ConsumerGroupCurrentMemberAssignmentKey coordinator-key 8 8
  GroupId string 8+
  MemberId string 8+
""",
    "ConsumerGroupCurrentMemberAssignmentValue": """\
ConsumerGroupCurrentMemberAssignmentValue coordinator-value 8 0 flexible=0+
  MemberEpoch int32 0+
  PreviousMemberEpoch int32 0+
  State int8 0+
  AssignedPartitions []TopicPartitions 0+
  PartitionsPendingRevocation []TopicPartitions 0+
TopicPartitions
  TopicId uuid 0+
  Partitions []int32 0+
  AssignmentEpochs []int32 0+ null=0+ tag=0:0+
""",
    "ConsumerGroupMemberMetadataKey": """\
ConsumerGroupMemberMetadataKey coordinator-key 5 5
  GroupId string 5+
  MemberId string 5+
""",
    "ConsumerGroupMemberMetadataValue": """\
ConsumerGroupMemberMetadataValue coordinator-value 5 0 flexible=0+
  InstanceId string 0+ null=0+
  RackId string 0+ null=0+
  ClientId string 0+
  ClientHost string 0+
  SubscribedTopicNames []string 0+
  SubscribedTopicRegex string 0+ null=0+
  RebalanceTimeoutMs int32 0+ default=-1
  ServerAssignor string 0+ null=0+
  ClassicMemberMetadata ClassicMemberMetadata 0+ null=0+ tag=0:0+
ClassicMemberMetadata
  SessionTimeoutMs int32 0+
  SupportedProtocols []ClassicProtocol 0+
ClassicProtocol
  Name string 0+
  Metadata bytes 0+
""",
    "ConsumerGroupMetadataKey": """\
ConsumerGroupMetadataKey coordinator-key 3 3
  GroupId string 3+
""",
    "ConsumerGroupMetadataValue": """\
ConsumerGroupMetadataValue coordinator-value 3 0 flexible=0+
  Epoch int32 0+
  MetadataHash int64 0+ tag=0:0+
""",
    "ConsumerGroupPartitionMetadataKey": """\
ConsumerGroupPartitionMetadataKey coordinator-key 4 4
  GroupId string 4+
""",
    "ConsumerGroupPartitionMetadataValue": """\
ConsumerGroupPartitionMetadataValue coordinator-value 4 0 flexible=0+
  Topics []TopicMetadata 0+
TopicMetadata
  TopicId uuid 0+
  TopicName string 0+
  NumPartitions int32 0+
  PartitionMetadata []PartitionMetadata 0+
PartitionMetadata
  Partition int32 0+
  Racks []string 0+
""",
    "ConsumerGroupRegularExpressionKey": """\
ConsumerGroupRegularExpressionKey coordinator-key 16 16
  GroupId string 16+
  RegularExpression string 16+
""",
    "ConsumerGroupRegularExpressionValue": """\
ConsumerGroupRegularExpressionValue coordinator-value 16 0 flexible=0+
  Topics []string 0+
  Version int64 0+
  Timestamp int64 0+
""",
    "ConsumerGroupTargetAssignmentMemberKey": """\
ConsumerGroupTargetAssignmentMemberKey coordinator-key 7 7
  GroupId string 7+
  MemberId string 7+
""",
    "ConsumerGroupTargetAssignmentMemberValue": """\
ConsumerGroupTargetAssignmentMemberValue coordinator-value 7 0 flexible=0+
  TopicPartitions []TopicPartition 0+
TopicPartition
  TopicId uuid 0+
  Partitions []int32 0+
""",
    "ConsumerGroupTargetAssignmentMetadataKey": """\
ConsumerGroupTargetAssignmentMetadataKey coordinator-key 6 6
  GroupId string 6+
""",
    "ConsumerGroupTargetAssignmentMetadataValue": """\
ConsumerGroupTargetAssignmentMetadataValue coordinator-value 6 0 flexible=0+
  AssignmentEpoch int32 0+
  AssignmentTimestamp int64 0+ tag=0:0+ ignorable
""",
    "ConsumerProtocolAssignment": """\
ConsumerProtocolAssignment data - 0-3
  AssignedPartitions []TopicPartition 0+
  UserData bytes 0+ null=0+ default=null zerocopy
TopicPartition
  Topic string 0+
  Partitions []int32 0+
""",
    "ConsumerProtocolSubscription": """\
ConsumerProtocolSubscription data - 0-3
  Topics []string 0+
  UserData bytes 0+ null=0+ default=null zerocopy
  OwnedPartitions []TopicPartition 1+ ignorable
  GenerationId int32 2+ default=-1 ignorable
  RackId string 3+ null=3+ default=null ignorable
TopicPartition
  Topic string 1+
  Partitions []int32 1+
""",
    "ControlRecordTypeSchema": """\
ControlRecordTypeSchema data - 0
  Type int16 0+
""",
    "DefaultPrincipalData": """\
DefaultPrincipalData data - 0 flexible=0+
  Type string 0+
  Name string 0+
  TokenAuthenticated bool 0+
""",
    "DelegationTokenRecord": """\
DelegationTokenRecord metadata 10 0 flexible=0+
  Owner string 0+
  Requester string 0+
  Renewers []string 0+
  IssueTimestamp int64 0+
  MaxTimestamp int64 0+
  ExpirationTimestamp int64 0+
  TokenId string 0+
""",
    "EndTransactionRecord": """\
EndTransactionRecord metadata 24 0 flexible=0+
""",
    "EndTxnMarker": """\
EndTxnMarker data - 0
  CoordinatorEpoch int32 0+
""",
    "FeatureLevelRecord": """\
FeatureLevelRecord metadata 12 0 flexible=0+
  Name string 0+
  FeatureLevel int16 0+
""",
    "FenceBrokerRecord": """\
FenceBrokerRecord metadata 7 0 flexible=0+
  Id int32 0+
  Epoch int64 0+
""",
    "GroupMetadataKey": """\
GroupMetadataKey coordinator-key 2 2
  group string 2+
""",
    "GroupMetadataValue": """\
GroupMetadataValue coordinator-value 2 0-4 flexible=4+
  protocolType string 0+
  generation int32 0+
  protocol string 0+ null=0+
  leader string 0+ null=0+
  currentStateTimestamp int64 2+ default=-1 ignorable
  members []MemberMetadata 0+
MemberMetadata
  memberId string 0+
  groupInstanceId string 3+ null=3+ default=null ignorable
  clientId string 0+
  clientHost string 0+
  rebalanceTimeout int32 1+ default=-1 ignorable
  sessionTimeout int32 0+
  subscription bytes 0+
  assignment bytes 0+
""",
    "KRaftVersionRecord": """\
KRaftVersionRecord data - 0 flexible=0+
  Version int16 0+
  KRaftVersion int16 0+
""",
    "LeaderChangeMessage": """\
LeaderChangeMessage data - 0-1 flexible=0+
  Version int16 0+
  LeaderId int32 0+
  Voters []Voter 0+
  GrantingVoters []Voter 0+
Voter
  VoterId int32 0+
  VoterDirectoryId uuid 1+
""",
    "LegacyOffsetCommitKey": """\
LegacyOffsetCommitKey coordinator-key 0 0
  group string 0+
  topic string 0+
  partition int32 0+
""",
    "LegacyOffsetCommitValue": """\
LegacyOffsetCommitValue coordinator-value 0 0
  offset int64 0+
  metadata string 0+
  commitTimestamp int64 0+
""",
    "NoOpRecord": """\
NoOpRecord metadata 20 0 flexible=0+
""",
    "OffsetCommitKey": """\
OffsetCommitKey coordinator-key 1 0-1
  group string 0+
  topic string 0+
  partition int32 0+
""",
    "OffsetCommitValue": """\
OffsetCommitValue coordinator-value 1 0-4 flexible=4+
  offset int64 0+
  leaderEpoch int32 3+ default=-1 ignorable
  metadata string 0+
  commitTimestamp int64 0+
  expireTimestamp int64 1 default=-1 ignorable
  topicId uuid 4+ tag=0:4+ ignorable
""",
    "PartitionChangeRecord": """\
PartitionChangeRecord metadata 5 0-2 flexible=0+
  PartitionId int32 0+ default=-1
  TopicId uuid 0+
  Isr []int32 0+ null=0+ tag=0:0+ default=null
  Leader int32 0+ tag=1:0+ default=-2
  Replicas []int32 0+ null=0+ tag=2:0+ default=null
  RemovingReplicas []int32 0+ null=0+ tag=3:0+ default=null
  AddingReplicas []int32 0+ null=0+ tag=4:0+ default=null
  LeaderRecoveryState int8 0+ tag=5:0+ default=-1
  Directories []uuid 1+ null=1+ tag=8:1+ default=null
  EligibleLeaderReplicas []int32 2+ null=2+ tag=6:2+ default=null
  LastKnownElr []int32 2+ null=2+ tag=7:2+ default=null
""",
    "PartitionRecord": """\
PartitionRecord metadata 3 0-2 flexible=0+
  PartitionId int32 0+ default=-1
  TopicId uuid 0+
  Replicas []int32 0+
  Isr []int32 0+
  RemovingReplicas []int32 0+
  AddingReplicas []int32 0+
  Leader int32 0+ default=-1
  LeaderRecoveryState int8 0+ tag=0:0+
  LeaderEpoch int32 0+ default=-1
  PartitionEpoch int32 0+ default=-1
  Directories []uuid 1+
  EligibleLeaderReplicas []int32 2+ null=2+ tag=1:2+ default=null
  LastKnownElr []int32 2+ null=2+ tag=2:2+ default=null
""",
    "ProducerIdsRecord": """\
ProducerIdsRecord metadata 15 0 flexible=0+
  BrokerId int32 0+
  BrokerEpoch int64 0+ default=-1
  NextProducerId int64 0+
""",
    "ProducerSnapshot": """\
ProducerSnapshot data - 1
  Crc uint32 1+
  ProducerEntries []ProducerEntry 1+
ProducerEntry
  ProducerId int64 1+
  Epoch int16 1+
  LastSequence int32 1+
  LastOffset int64 1+
  OffsetDelta int32 1+
  Timestamp int64 1+
  CoordinatorEpoch int32 1+
  CurrentTxnFirstOffset int64 1+
""",
    "QuorumStateData": """\
QuorumStateData data - 0-1 flexible=0+
  ClusterId string 0
  LeaderId int32 0+ default=-1
  LeaderEpoch int32 0+ default=-1
  VotedId int32 0+ default=-1
  VotedDirectoryId uuid 1+
  AppliedOffset int64 0
  CurrentVoters []Voter 0 null=0
Voter
  VoterId int32 0
""",
    "RegisterBrokerRecord": """\
RegisterBrokerRecord metadata 0 0-4 flexible=0+
  BrokerId int32 0+
  IsMigratingZkBroker bool 2+
  IncarnationId uuid 0+
  BrokerEpoch int64 0+
  EndPoints []BrokerEndpoint 0+
  Features []BrokerFeature 0+
  Rack string 0+ null=0+
  Fenced bool 0+ default=true
  InControlledShutdown bool 1+
  LogDirs []uuid 3+ tag=0:3+
  CordonedLogDirs []uuid 4+ null=4+ tag=1:4+ default=null
BrokerEndpoint
  Name string 0+
  Host string 0+
  Port uint16 0+
  SecurityProtocol int16 0+
BrokerFeature
  Name string 0+
  MinSupportedVersion int16 0+
  MaxSupportedVersion int16 0+
""",
    "RegisterControllerRecord": """\
RegisterControllerRecord metadata 27 0 flexible=0+
  ControllerId int32 0+
  IncarnationId uuid 0+
  ZkMigrationReady bool 0+
  EndPoints []ControllerEndpoint 0+
  Features []ControllerFeature 0+
ControllerEndpoint
  Name string 0+
  Host string 0+
  Port uint16 0+
  SecurityProtocol int16 0+
ControllerFeature
  Name string 0+
  MinSupportedVersion int16 0+
  MaxSupportedVersion int16 0+
""",
    "RemoteLogSegmentMetadataRecord": """\
RemoteLogSegmentMetadataRecord metadata 0 0 flexible=0+
  RemoteLogSegmentId RemoteLogSegmentIdEntry 0+
  StartOffset int64 0+
  EndOffset int64 0+
  BrokerId int32 0+
  MaxTimestampMs int64 0+
  EventTimestampMs int64 0+
  SegmentLeaderEpochs []SegmentLeaderEpochEntry 0+
  SegmentSizeInBytes int32 0+
  CustomMetadata bytes 0+ null=0+ default=null
  RemoteLogSegmentState int8 0+
  TxnIndexEmpty bool 0+ tag=0:0+
RemoteLogSegmentIdEntry
  TopicIdPartition TopicIdPartitionEntry 0+
  Id uuid 0+
TopicIdPartitionEntry
  Name string 0+
  Id uuid 0+
  Partition int32 0+
SegmentLeaderEpochEntry
  LeaderEpoch int32 0+
  Offset int64 0+
""",
    "RemoteLogSegmentMetadataSnapshotRecord": """\
RemoteLogSegmentMetadataSnapshotRecord metadata 3 0 flexible=0+
  SegmentId uuid 0+
  StartOffset int64 0+
  EndOffset int64 0+
  BrokerId int32 0+
  MaxTimestampMs int64 0+
  EventTimestampMs int64 0+
  SegmentLeaderEpochs []SegmentLeaderEpochEntry 0+
  SegmentSizeInBytes int32 0+
  CustomMetadata bytes 0+ null=0+ default=null
  RemoteLogSegmentState int8 0+
  TxnIndexEmpty bool 0+ tag=0:0+
SegmentLeaderEpochEntry
  LeaderEpoch int32 0+
  Offset int64 0+
""",
    "RemoteLogSegmentMetadataUpdateRecord": """\
RemoteLogSegmentMetadataUpdateRecord metadata 1 0 flexible=0+
  RemoteLogSegmentId RemoteLogSegmentIdEntry 0+
  BrokerId int32 0+
  EventTimestampMs int64 0+
  CustomMetadata bytes 0+ null=0+ default=null
  RemoteLogSegmentState int8 0+
RemoteLogSegmentIdEntry
  TopicIdPartition TopicIdPartitionEntry 0+
  Id uuid 0+
TopicIdPartitionEntry
  Name string 0+
  Id uuid 0+
  Partition int32 0+
""",
    "RemotePartitionDeleteMetadataRecord": """\
RemotePartitionDeleteMetadataRecord metadata 2 0 flexible=0+
  TopicIdPartition TopicIdPartitionEntry 0+
  BrokerId int32 0+
  EventTimestampMs int64 0+
  RemotePartitionDeleteState int8 0+
TopicIdPartitionEntry
  Name string 0+
  Id uuid 0+
  Partition int32 0+
""",
    "RemoveAccessControlEntryRecord": """\
RemoveAccessControlEntryRecord metadata 19 0 flexible=0+
  Id uuid 0+
""",
    "RemoveDelegationTokenRecord": """\
RemoveDelegationTokenRecord metadata 26 0 flexible=0+
  TokenId string 0+
""",
    "RemoveTopicRecord": """\
RemoveTopicRecord metadata 9 0 flexible=0+
  TopicId uuid 0+
""",
    "RemoveUserScramCredentialRecord": """\
RemoveUserScramCredentialRecord metadata 22 0 flexible=0+
  Name string 0+
  Mechanism int8 0+
""",
    "ShareGroupCurrentMemberAssignmentKey": """\
ShareGroupCurrentMemberAssignmentKey coordinator-key 14 14
  GroupId string 14+
  MemberId string 14+
""",
    "ShareGroupCurrentMemberAssignmentValue": """\
ShareGroupCurrentMemberAssignmentValue coordinator-value 14 0 flexible=0+
  MemberEpoch int32 0+
  PreviousMemberEpoch int32 0+
  State int8 0+
  AssignedPartitions []TopicPartitions 0+
TopicPartitions
  TopicId uuid 0+
  Partitions []int32 0+
""",
    "ShareGroupMemberMetadataKey": """\
ShareGroupMemberMetadataKey coordinator-key 10 10
  GroupId string 10+
  MemberId string 10+
""",
    "ShareGroupMemberMetadataValue": """\
ShareGroupMemberMetadataValue coordinator-value 10 0 flexible=0+
  RackId string 0+ null=0+
  ClientId string 0+
  ClientHost string 0+
  SubscribedTopicNames []string 0+
""",
    "ShareGroupMetadataKey": """\
ShareGroupMetadataKey coordinator-key 11 11
  GroupId string 11+
""",
    "ShareGroupMetadataValue": """\
ShareGroupMetadataValue coordinator-value 11 0 flexible=0+
  Epoch int32 0+
  MetadataHash int64 0+
""",
    "ShareGroupPartitionMetadataKey": """\
ShareGroupPartitionMetadataKey data - 9
  GroupId string 9+
""",
    "ShareGroupPartitionMetadataValue": """\
ShareGroupPartitionMetadataValue data - 0 flexible=0+
  InitializedTopics []TopicPartitionsInfo 0+
  DeletingTopics []TopicInfo 0+
TopicPartitionsInfo
  TopicId uuid 0+
  TopicName string 0+
  Partitions []int32 0+
TopicInfo
  TopicId uuid 0+
  TopicName string 0+
""",
    "ShareGroupStatePartitionMetadataKey": """\
ShareGroupStatePartitionMetadataKey coordinator-key 15 15
  GroupId string 15+
""",
    "ShareGroupStatePartitionMetadataValue": """\
ShareGroupStatePartitionMetadataValue coordinator-value 15 0 flexible=0+
  InitializingTopics []TopicPartitionsInfo 0+
  InitializedTopics []TopicPartitionsInfo 0+
  DeletingTopics []TopicInfo 0+
TopicPartitionsInfo
  TopicId uuid 0+
  TopicName string 0+
  Partitions []int32 0+
TopicInfo
  TopicId uuid 0+
  TopicName string 0+
""",
    "ShareGroupTargetAssignmentMemberKey": """\
ShareGroupTargetAssignmentMemberKey coordinator-key 13 13
  GroupId string 13+
  MemberId string 13+
""",
    "ShareGroupTargetAssignmentMemberValue": """\
ShareGroupTargetAssignmentMemberValue coordinator-value 13 0 flexible=0+
  TopicPartitions []TopicPartition 0+
TopicPartition
  TopicId uuid 0+
  Partitions []int32 0+
""",
    "ShareGroupTargetAssignmentMetadataKey": """\
ShareGroupTargetAssignmentMetadataKey coordinator-key 12 12
  GroupId string 12+
""",
    "ShareGroupTargetAssignmentMetadataValue": """\
ShareGroupTargetAssignmentMetadataValue coordinator-value 12 0 flexible=0+
  AssignmentEpoch int32 0+
  AssignmentTimestamp int64 0+ tag=0:0+ ignorable
""",
    "ShareSnapshotKey": """\
ShareSnapshotKey coordinator-key 0 0
  GroupId string 0+
  TopicId uuid 0+
  Partition int32 0+
""",
    "ShareSnapshotValue": """\
ShareSnapshotValue coordinator-value 0 0 flexible=0+
  SnapshotEpoch int32 0+
  StateEpoch int32 0+
  LeaderEpoch int32 0+
  StartOffset int64 0+
  DeliveryCompleteCount int32 0+ tag=0:0+ default=-1
  CreateTimestamp int64 0+
  WriteTimestamp int64 0+
  StateBatches []StateBatch 0+
StateBatch
  FirstOffset int64 0+
  LastOffset int64 0+
  DeliveryState int8 0+
  DeliveryCount int16 0+
""",
    "ShareUpdateKey": """\
ShareUpdateKey coordinator-key 1 1
  GroupId string 1+
  TopicId uuid 1+
  Partition int32 1+
""",
    "ShareUpdateValue": """\
ShareUpdateValue coordinator-value 1 0 flexible=0+
  SnapshotEpoch int32 0+
  LeaderEpoch int32 0+
  StartOffset int64 0+
  DeliveryCompleteCount int32 0+ tag=0:0+ default=-1
  StateBatches []StateBatch 0+
StateBatch
  FirstOffset int64 0+
  LastOffset int64 0+
  DeliveryState int8 0+
  DeliveryCount int16 0+
""",
    "SnapshotFooterRecord": """\
SnapshotFooterRecord data - 0 flexible=0+
  Version int16 0+
""",
    "SnapshotHeaderRecord": """\
SnapshotHeaderRecord data - 0 flexible=0+
  Version int16 0+
  LastContainedLogTimestamp int64 0+
""",
    "StreamsGroupCurrentMemberAssignmentKey": """\
StreamsGroupCurrentMemberAssignmentKey coordinator-key 22 22
  GroupId string 22+
  MemberId string 22+
""",
    "StreamsGroupCurrentMemberAssignmentValue": """\
StreamsGroupCurrentMemberAssignmentValue coordinator-value 22 0 flexible=0+
  MemberEpoch int32 0+
  PreviousMemberEpoch int32 0+
  State int8 0+
  ActiveTasks []TaskIds 0+
  StandbyTasks []TaskIds 0+
  WarmupTasks []TaskIds 0+
  ActiveTasksPendingRevocation []TaskIds 0+
  StandbyTasksPendingRevocation []TaskIds 0+
  WarmupTasksPendingRevocation []TaskIds 0+
TaskIds
  SubtopologyId string 0+
  Partitions []int32 0+
  AssignmentEpochs []int32 0+ null=0+ tag=0:0+
""",
    "StreamsGroupMemberMetadataKey": """\
StreamsGroupMemberMetadataKey coordinator-key 19 19
  GroupId string 19+
  MemberId string 19+
""",
    "StreamsGroupMemberMetadataValue": """\
StreamsGroupMemberMetadataValue coordinator-value 19 0 flexible=0+
  InstanceId string 0+ null=0+
  RackId string 0+ null=0+
  ClientId string 0+
  ClientHost string 0+
  RebalanceTimeoutMs int32 0+ default=-1
  TopologyEpoch int32 0+
  ProcessId string 0+
  UserEndpoint Endpoint 0+ null=0+ default=null
  ClientTags []KeyValue 0+
Endpoint
  Host string 0+
  Port uint16 0+
KeyValue
  Key string 0+
  Value string 0+
""",
    "StreamsGroupMetadataKey": """\
StreamsGroupMetadataKey coordinator-key 17 17
  GroupId string 17+
""",
    "StreamsGroupMetadataValue": """\
StreamsGroupMetadataValue coordinator-value 17 0 flexible=0+
  Epoch int32 0+
  MetadataHash int64 0+
  ValidatedTopologyEpoch int32 0+ tag=0:0+ default=-1
  LastAssignmentConfigs []LastAssignmentConfig 0+ null=0+ tag=1:0+
  StoredDescriptionTopologyEpoch int32 0+ tag=2:0+ default=-1
  FailedDescriptionTopologyEpoch int32 0+ tag=3:0+ default=-1
LastAssignmentConfig
  Key string 0+
  Value string 0+
""",
    "StreamsGroupTargetAssignmentMemberKey": """\
StreamsGroupTargetAssignmentMemberKey coordinator-key 21 21
  GroupId string 21+
  MemberId string 21+
""",
    "StreamsGroupTargetAssignmentMemberValue": """\
StreamsGroupTargetAssignmentMemberValue coordinator-value 21 0 flexible=0+
  ActiveTasks []TaskIds 0+
  StandbyTasks []TaskIds 0+
  WarmupTasks []TaskIds 0+
TaskIds
  SubtopologyId string 0+
  Partitions []int32 0+
""",
    "StreamsGroupTargetAssignmentMetadataKey": """\
StreamsGroupTargetAssignmentMetadataKey coordinator-key 20 20
  GroupId string 20+
""",
    "StreamsGroupTargetAssignmentMetadataValue": """\
StreamsGroupTargetAssignmentMetadataValue coordinator-value 20 0 flexible=0+
  AssignmentEpoch int32 0+
  AssignmentTimestamp int64 0+ tag=0:0+ ignorable
""",
    "StreamsGroupTopologyKey": """\
StreamsGroupTopologyKey coordinator-key 23 23
  GroupId string 23+
""",
    "StreamsGroupTopologyValue": """\
StreamsGroupTopologyValue coordinator-value 23 0 flexible=0+
  Epoch int32 0+
  Subtopologies []Subtopology 0+
Subtopology
  SubtopologyId string 0+
  SourceTopics []string 0+
  SourceTopicRegex []string 0+
  StateChangelogTopics []TopicInfo 0+
  RepartitionSinkTopics []string 0+
  RepartitionSourceTopics []TopicInfo 0+
  CopartitionGroups []CopartitionGroup 0+
TopicInfo
  Name string 0+
  Partitions int32 0+
  ReplicationFactor int16 0+
  TopicConfigs []TopicConfig 0+
TopicConfig
  key string 0+
  value string 0+
CopartitionGroup
  SourceTopics []int16 0+
  SourceTopicRegex []int16 0+
  RepartitionSourceTopics []int16 0+
""",
    "TopicRecord": """\
TopicRecord metadata 2 0 flexible=0+
  Name string 0+
  TopicId uuid 0+
""",
    "TransactionLogKey": """\
TransactionLogKey coordinator-key 0 0
  TransactionalId string 0+
""",
    "TransactionLogValue": """\
TransactionLogValue coordinator-value 0 0-1 flexible=1+
  ProducerId int64 0+
  PreviousProducerId int64 1+ tag=0:1+ default=-1
  NextProducerId int64 1+ tag=1:1+ default=-1
  ProducerEpoch int16 0+
  NextProducerEpoch int16 1+ tag=3:1+ default=-1
  TransactionTimeoutMs int32 0+
  TransactionStatus int8 0+
  TransactionPartitions []PartitionsSchema 0+ null=0+
  TransactionLastUpdateTimestampMs int64 0+
  TransactionStartTimestampMs int64 0+
  ClientTransactionVersion int16 1+ tag=2:1+
PartitionsSchema
  Topic string 0+
  PartitionIds []int32 0+
""",
    "UnfenceBrokerRecord": """\
UnfenceBrokerRecord metadata 8 0 flexible=0+
  Id int32 0+
  Epoch int64 0+
""",
    "UnregisterBrokerRecord": """\
UnregisterBrokerRecord metadata 1 0 flexible=0+
  BrokerId int32 0+
  BrokerEpoch int64 0+
""",
    "UnregisterControllerRecord": """\
UnregisterControllerRecord metadata 29 0 flexible=0+
  ControllerId int32 0+
""",
    "UserScramCredentialRecord": """\
UserScramCredentialRecord metadata 11 0 flexible=0+
  Name string 0+
  Mechanism int8 0+
  Salt bytes 0+
  StoredKey bytes 0+
  ServerKey bytes 0+
  Iterations int32 0+
""",
    "VotersRecord": """\
VotersRecord data - 0 flexible=0+
  Version int16 0+
  Voters []Voter 0+
Voter
  VoterId int32 0+
  VoterDirectoryId uuid 0+
  Endpoints []Endpoint 0+
  KRaftVersionFeature KRaftVersionFeature 0+
Endpoint
  Name string 0+
  Host string 0+
  Port uint16 0+
KRaftVersionFeature
  MinSupportedVersion int16 0+
  MaxSupportedVersion int16 0+
""",
    "ZkMigrationStateRecord": """\
ZkMigrationStateRecord metadata 21 0 flexible=0+
  ZkMigrationState int8 0+
""",
}
