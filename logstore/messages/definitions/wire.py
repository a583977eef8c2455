"""Requests, responses and their headers, of Kafka 3.9.2 and 4.4.0.

Written by `make messages` from Kafka's definitions; do not edit. The form is told in
`logstore.messages.schema`.
"""

from __future__ import annotations

DEFINITIONS = {
    "AddOffsetsToTxnRequest": """\
AddOffsetsToTxnRequest request 25 0-4 flexible=3+
  TransactionalId string 0+
  ProducerId int64 0+
  ProducerEpoch int16 0+
  GroupId string 0+
""",
    "AddOffsetsToTxnResponse": """\
AddOffsetsToTxnResponse response 25 0-4 flexible=3+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
""",
    "AddPartitionsToTxnRequest": """\
AddPartitionsToTxnRequest request 24 0-5 flexible=3+
  Transactions []AddPartitionsToTxnTransaction 4+
  V3AndBelowTransactionalId string 0-3
  V3AndBelowProducerId int64 0-3
  V3AndBelowProducerEpoch int16 0-3
  V3AndBelowTopics []AddPartitionsToTxnTopic 0-3
AddPartitionsToTxnTransaction
  TransactionalId string 4+
  ProducerId int64 4+
  ProducerEpoch int16 4+
  VerifyOnly bool 4+
  Topics []AddPartitionsToTxnTopic 4+
AddPartitionsToTxnTopic
  Name string 0+
  Partitions []int32 0+
""",
    "AddPartitionsToTxnResponse": """\
AddPartitionsToTxnResponse response 24 0-5 flexible=3+
  ThrottleTimeMs int32 0+
  ErrorCode int16 4+ ignorable
  ResultsByTransaction []AddPartitionsToTxnResult 4+
  ResultsByTopicV3AndBelow []AddPartitionsToTxnTopicResult 0-3
AddPartitionsToTxnResult
  TransactionalId string 4+
  TopicResults []AddPartitionsToTxnTopicResult 4+
AddPartitionsToTxnTopicResult
  Name string 0+
  ResultsByPartition []AddPartitionsToTxnPartitionResult 0+
AddPartitionsToTxnPartitionResult
  PartitionIndex int32 0+
  PartitionErrorCode int16 0+
""",
    "AddRaftVoterRequest": """\
AddRaftVoterRequest request 80 0-1 flexible=0+
  ClusterId string 0+ null=0+
  TimeoutMs int32 0+
  VoterId int32 0+
  VoterDirectoryId uuid 0+
  Listeners []Listener 0+
  AckWhenCommitted bool 1+ default=true
Listener
  Name string 0+
  Host string 0+
  Port uint16 0+
""",
    "AddRaftVoterResponse": """\
AddRaftVoterResponse response 80 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ ignorable
""",
    "AllocateProducerIdsRequest": """\
AllocateProducerIdsRequest request 67 0 flexible=0+
  BrokerId int32 0+
  BrokerEpoch int64 0+ default=-1
""",
    "AllocateProducerIdsResponse": """\
AllocateProducerIdsResponse response 67 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ProducerIdStart int64 0+
  ProducerIdLen int32 0+
""",
    "AlterClientQuotasRequest": """\
AlterClientQuotasRequest request 49 0-1 flexible=1+
  Entries []EntryData 0+
  ValidateOnly bool 0+
EntryData
  Entity []EntityData 0+
  Ops []OpData 0+
EntityData
  EntityType string 0+
  EntityName string 0+ null=0+
OpData
  Key string 0+
  Value float64 0+
  Remove bool 0+
""",
    "AlterClientQuotasResponse": """\
AlterClientQuotasResponse response 49 0-1 flexible=1+
  ThrottleTimeMs int32 0+
  Entries []EntryData 0+
EntryData
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  Entity []EntityData 0+
EntityData
  EntityType string 0+
  EntityName string 0+ null=0+
""",
    "AlterConfigsRequest": """\
AlterConfigsRequest request 33 0-2 flexible=2+
  Resources []AlterConfigsResource 0+
  ValidateOnly bool 0+
AlterConfigsResource
  ResourceType int8 0+
  ResourceName string 0+
  Configs []AlterableConfig 0+
AlterableConfig
  Name string 0+
  Value string 0+ null=0+
""",
    "AlterConfigsResponse": """\
AlterConfigsResponse response 33 0-2 flexible=2+
  ThrottleTimeMs int32 0+
  Responses []AlterConfigsResourceResponse 0+
AlterConfigsResourceResponse
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  ResourceType int8 0+
  ResourceName string 0+
""",
    "AlterPartitionReassignmentsRequest": """\
AlterPartitionReassignmentsRequest request 45 0-1 flexible=0+
  TimeoutMs int32 0+ default=60000
  AllowReplicationFactorChange bool 1+ default=true
  Topics []ReassignableTopic 0+
ReassignableTopic
  Name string 0+
  Partitions []ReassignablePartition 0+
ReassignablePartition
  PartitionIndex int32 0+
  Replicas []int32 0+ null=0+ default=null
""",
    "AlterPartitionReassignmentsResponse": """\
AlterPartitionReassignmentsResponse response 45 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  AllowReplicationFactorChange bool 1+ default=true ignorable
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  Responses []ReassignableTopicResponse 0+
ReassignableTopicResponse
  Name string 0+
  Partitions []ReassignablePartitionResponse 0+
ReassignablePartitionResponse
  PartitionIndex int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "AlterPartitionRequest": """\
AlterPartitionRequest request 56 0-3 flexible=0+
  BrokerId int32 0+
  BrokerEpoch int64 0+ default=-1
  Topics []TopicData 0+
TopicData
  TopicName string 0-1 ignorable
  TopicId uuid 2+ ignorable
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  LeaderEpoch int32 0+
  NewIsr []int32 0-2
  NewIsrWithEpochs []BrokerState 3+
  LeaderRecoveryState int8 1+
  PartitionEpoch int32 0+
BrokerState
  BrokerId int32 3+
  BrokerEpoch int64 3+ default=-1
""",
    "AlterPartitionResponse": """\
AlterPartitionResponse response 56 0-3 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  Topics []TopicData 0+
TopicData
  TopicName string 0-1 ignorable
  TopicId uuid 2+ ignorable
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  LeaderId int32 0+
  LeaderEpoch int32 0+
  Isr []int32 0+
  LeaderRecoveryState int8 1+ ignorable
  PartitionEpoch int32 0+
""",
    "AlterReplicaLogDirsRequest": """\
AlterReplicaLogDirsRequest request 34 0-2 flexible=2+
  Dirs []AlterReplicaLogDir 0+
AlterReplicaLogDir
  Path string 0+
  Topics []AlterReplicaLogDirTopic 0+
AlterReplicaLogDirTopic
  Name string 0+
  Partitions []int32 0+
""",
    "AlterReplicaLogDirsResponse": """\
AlterReplicaLogDirsResponse response 34 0-2 flexible=2+
  ThrottleTimeMs int32 0+
  Results []AlterReplicaLogDirTopicResult 0+
AlterReplicaLogDirTopicResult
  TopicName string 0+
  Partitions []AlterReplicaLogDirPartitionResult 0+
AlterReplicaLogDirPartitionResult
  PartitionIndex int32 0+
  ErrorCode int16 0+
""",
    "AlterShareGroupOffsetsRequest": """\
AlterShareGroupOffsetsRequest request 91 0 flexible=0+
  GroupId string 0+
  Topics []AlterShareGroupOffsetsRequestTopic 0+
AlterShareGroupOffsetsRequestTopic
  TopicName string 0+
  Partitions []AlterShareGroupOffsetsRequestPartition 0+
AlterShareGroupOffsetsRequestPartition
  PartitionIndex int32 0+
  StartOffset int64 0+
""",
    "AlterShareGroupOffsetsResponse": """\
AlterShareGroupOffsetsResponse response 91 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  Responses []AlterShareGroupOffsetsResponseTopic 0+
AlterShareGroupOffsetsResponseTopic
  TopicName string 0+
  TopicId uuid 0+
  Partitions []AlterShareGroupOffsetsResponsePartition 0+
AlterShareGroupOffsetsResponsePartition
  PartitionIndex int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "AlterUserScramCredentialsRequest": """\
AlterUserScramCredentialsRequest request 51 0 flexible=0+
  Deletions []ScramCredentialDeletion 0+
  Upsertions []ScramCredentialUpsertion 0+
ScramCredentialDeletion
  Name string 0+
  Mechanism int8 0+
ScramCredentialUpsertion
  Name string 0+
  Mechanism int8 0+
  Iterations int32 0+
  Salt bytes 0+
  SaltedPassword bytes 0+
""",
    "AlterUserScramCredentialsResponse": """\
AlterUserScramCredentialsResponse response 51 0 flexible=0+
  ThrottleTimeMs int32 0+
  Results []AlterUserScramCredentialsResult 0+
AlterUserScramCredentialsResult
  User string 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "ApiVersionsRequest": """\
ApiVersionsRequest request 18 0-5 flexible=3+
  ClientSoftwareName string 3+ ignorable
  ClientSoftwareVersion string 3+ ignorable
  ClusterId string 5+ null=5+ default=null ignorable
  NodeId int32 5+ default=-1 ignorable
""",
    "ApiVersionsResponse": """\
ApiVersionsResponse response 18 0-5 flexible=3+
  ErrorCode int16 0+
  ApiKeys []ApiVersion 0+
  ThrottleTimeMs int32 1+ ignorable
  SupportedFeatures []SupportedFeatureKey 3+ tag=0:3+ ignorable
  FinalizedFeaturesEpoch int64 3+ tag=1:3+ default=-1 ignorable
  FinalizedFeatures []FinalizedFeatureKey 3+ tag=2:3+ ignorable
  ZkMigrationReady bool 3+ tag=3:3+ ignorable
ApiVersion
  ApiKey int16 0+
  MinVersion int16 0+
  MaxVersion int16 0+
SupportedFeatureKey
  Name string 3+
  MinVersion int16 3+
  MaxVersion int16 3+
FinalizedFeatureKey
  Name string 3+
  MaxVersionLevel int16 3+
  MinVersionLevel int16 3+
""",
    "AssignReplicasToDirsRequest": """\
AssignReplicasToDirsRequest request 73 0 flexible=0+
  BrokerId int32 0+
  BrokerEpoch int64 0+ default=-1
  Directories []DirectoryData 0+
DirectoryData
  Id uuid 0+
  Topics []TopicData 0+
TopicData
  TopicId uuid 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
""",
    "AssignReplicasToDirsResponse": """\
AssignReplicasToDirsResponse response 73 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  Directories []DirectoryData 0+
DirectoryData
  Id uuid 0+
  Topics []TopicData 0+
TopicData
  TopicId uuid 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
""",
    "BeginQuorumEpochRequest": """\
BeginQuorumEpochRequest request 53 0-1 flexible=1+
  ClusterId string 0+ null=0+ default=null
  VoterId int32 1+ default=-1 ignorable
  Topics []TopicData 0+
  LeaderEndpoints []LeaderEndpoint 1+ ignorable
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  VoterDirectoryId uuid 1+ ignorable
  LeaderId int32 0+
  LeaderEpoch int32 0+
LeaderEndpoint
  Name string 1+
  Host string 1+
  Port uint16 1+
""",
    "BeginQuorumEpochResponse": """\
BeginQuorumEpochResponse response 53 0-1 flexible=1+
  ErrorCode int16 0+
  Topics []TopicData 0+
  NodeEndpoints []NodeEndpoint 1+ tag=0:1+
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  LeaderId int32 0+
  LeaderEpoch int32 0+
NodeEndpoint
  NodeId int32 1+
  Host string 1+
  Port uint16 1+
""",
    "BrokerHeartbeatRequest": """\
BrokerHeartbeatRequest request 63 0-2 flexible=0+
  BrokerId int32 0+
  BrokerEpoch int64 0+ default=-1
  CurrentMetadataOffset int64 0+
  WantFence bool 0+
  WantShutDown bool 0+
  OfflineLogDirs []uuid 1+ tag=0:1+
  CordonedLogDirs []uuid 2+ null=2+ tag=1:2+ default=null
""",
    "BrokerHeartbeatResponse": """\
BrokerHeartbeatResponse response 63 0-2 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  IsCaughtUp bool 0+
  IsFenced bool 0+ default=true
  ShouldShutDown bool 0+
""",
    "BrokerRegistrationRequest": """\
BrokerRegistrationRequest request 62 0-4 flexible=0+
  BrokerId int32 0+
  ClusterId string 0+
  IncarnationId uuid 0+
  Listeners []Listener 0+
  Features []Feature 0+
  Rack string 0+ null=0+
  IsMigratingZkBroker bool 1+
  LogDirs []uuid 2+ ignorable
  PreviousBrokerEpoch int64 3+ default=-1 ignorable
Listener
  Name string 0+
  Host string 0+
  Port uint16 0+
  SecurityProtocol int16 0+
Feature
  Name string 0+
  MinSupportedVersion int16 0+
  MaxSupportedVersion int16 0+
""",
    "BrokerRegistrationResponse": """\
BrokerRegistrationResponse response 62 0-4 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  BrokerEpoch int64 0+ default=-1
""",
    "ConsumerGroupDescribeRequest": """\
ConsumerGroupDescribeRequest request 69 0-1 flexible=0+
  GroupIds []string 0+
  IncludeAuthorizedOperations bool 0+
""",
    "ConsumerGroupDescribeResponse": """\
ConsumerGroupDescribeResponse response 69 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  Groups []DescribedGroup 0+
DescribedGroup
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  GroupId string 0+
  GroupState string 0+
  GroupEpoch int32 0+
  AssignmentEpoch int32 0+
  AssignorName string 0+
  Members []Member 0+
  AuthorizedOperations int32 0+ default=-2147483648
Member
  MemberId string 0+
  InstanceId string 0+ null=0+ default=null
  RackId string 0+ null=0+ default=null
  MemberEpoch int32 0+
  ClientId string 0+
  ClientHost string 0+
  SubscribedTopicNames []string 0+
  SubscribedTopicRegex string 0+ null=0+ default=null
  Assignment Assignment 0+
  TargetAssignment Assignment 0+
  MemberType int8 1+ default=-1 ignorable
Assignment
  TopicPartitions []TopicPartitions 0+
TopicPartitions
  TopicId uuid 0+
  TopicName string 0+
  Partitions []int32 0+
""",
    "ConsumerGroupHeartbeatRequest": """\
ConsumerGroupHeartbeatRequest request 68 0-1 flexible=0+
  GroupId string 0+
  MemberId string 0+
  MemberEpoch int32 0+
  InstanceId string 0+ null=0+ default=null
  RackId string 0+ null=0+ default=null
  RebalanceTimeoutMs int32 0+ default=-1
  SubscribedTopicNames []string 0+ null=0+ default=null
  SubscribedTopicRegex string 1+ null=1+ default=null
  ServerAssignor string 0+ null=0+ default=null
  TopicPartitions []TopicPartitions 0+ null=0+ default=null
TopicPartitions
  TopicId uuid 0+
  Partitions []int32 0+
""",
    "ConsumerGroupHeartbeatResponse": """\
ConsumerGroupHeartbeatResponse response 68 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  MemberId string 0+ null=0+ default=null
  MemberEpoch int32 0+
  HeartbeatIntervalMs int32 0+
  Assignment Assignment 0+ null=0+ default=null
Assignment
  TopicPartitions []TopicPartitions 0+
TopicPartitions
  TopicId uuid 0+
  Partitions []int32 0+
""",
    "ControlledShutdownRequest": """\
ControlledShutdownRequest request 7 0-3 flexible=3+
  BrokerId int32 0+
  BrokerEpoch int64 2+ default=-1 ignorable
""",
    "ControlledShutdownResponse": """\
ControlledShutdownResponse response 7 0-3 flexible=3+
  ErrorCode int16 0+
  RemainingPartitions []RemainingPartition 0+
RemainingPartition
  TopicName string 0+
  PartitionIndex int32 0+
""",
    "ControllerRegistrationRequest": """\
ControllerRegistrationRequest request 70 0 flexible=0+
  ControllerId int32 0+
  IncarnationId uuid 0+
  ZkMigrationReady bool 0+
  Listeners []Listener 0+
  Features []Feature 0+
Listener
  Name string 0+
  Host string 0+
  Port uint16 0+
  SecurityProtocol int16 0+
Feature
  Name string 0+
  MinSupportedVersion int16 0+
  MaxSupportedVersion int16 0+
""",
    "ControllerRegistrationResponse": """\
ControllerRegistrationResponse response 70 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "CreateAclsRequest": """\
CreateAclsRequest request 30 0-3 flexible=2+
  Creations []AclCreation 0+
AclCreation
  ResourceType int8 0+
  ResourceName string 0+
  ResourcePatternType int8 1+ default=3
  Principal string 0+
  Host string 0+
  Operation int8 0+
  PermissionType int8 0+
""",
    "CreateAclsResponse": """\
CreateAclsResponse response 30 0-3 flexible=2+
  ThrottleTimeMs int32 0+
  Results []AclCreationResult 0+
AclCreationResult
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "CreateDelegationTokenRequest": """\
CreateDelegationTokenRequest request 38 0-3 flexible=2+
  OwnerPrincipalType string 3+ null=3+
  OwnerPrincipalName string 3+ null=3+
  Renewers []CreatableRenewers 0+
  MaxLifetimeMs int64 0+
CreatableRenewers
  PrincipalType string 0+
  PrincipalName string 0+
""",
    "CreateDelegationTokenResponse": """\
CreateDelegationTokenResponse response 38 0-3 flexible=2+
  ErrorCode int16 0+
  PrincipalType string 0+
  PrincipalName string 0+
  TokenRequesterPrincipalType string 3+
  TokenRequesterPrincipalName string 3+
  IssueTimestampMs int64 0+
  ExpiryTimestampMs int64 0+
  MaxTimestampMs int64 0+
  TokenId string 0+
  Hmac bytes 0+
  ThrottleTimeMs int32 0+
""",
    "CreatePartitionsRequest": """\
CreatePartitionsRequest request 37 0-3 flexible=2+
  Topics []CreatePartitionsTopic 0+
  TimeoutMs int32 0+
  ValidateOnly bool 0+
CreatePartitionsTopic
  Name string 0+
  Count int32 0+
  Assignments []CreatePartitionsAssignment 0+ null=0+
CreatePartitionsAssignment
  BrokerIds []int32 0+
""",
    "CreatePartitionsResponse": """\
CreatePartitionsResponse response 37 0-3 flexible=2+
  ThrottleTimeMs int32 0+
  Results []CreatePartitionsTopicResult 0+
CreatePartitionsTopicResult
  Name string 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "CreateTopicsRequest": """\
CreateTopicsRequest request 19 0-7 flexible=5+
  Topics []CreatableTopic 0+
  timeoutMs int32 0+ default=60000
  validateOnly bool 1+
CreatableTopic
  Name string 0+
  NumPartitions int32 0+
  ReplicationFactor int16 0+
  Assignments []CreatableReplicaAssignment 0+
  Configs []CreatableTopicConfig 0+
CreatableReplicaAssignment
  PartitionIndex int32 0+
  BrokerIds []int32 0+
CreatableTopicConfig
  Name string 0+
  Value string 0+ null=0+
""",
    "CreateTopicsResponse": """\
CreateTopicsResponse response 19 0-7 flexible=5+
  ThrottleTimeMs int32 2+ ignorable
  Topics []CreatableTopicResult 0+
CreatableTopicResult
  Name string 0+
  TopicId uuid 7+ ignorable
  ErrorCode int16 0+
  ErrorMessage string 1+ null=1+ ignorable
  TopicConfigErrorCode int16 5+ tag=0:5+ ignorable
  NumPartitions int32 5+ default=-1 ignorable
  ReplicationFactor int16 5+ default=-1 ignorable
  Configs []CreatableTopicConfigs 5+ null=5+ ignorable
CreatableTopicConfigs
  Name string 5+
  Value string 5+ null=5+
  ReadOnly bool 5+
  ConfigSource int8 5+ default=-1 ignorable
  IsSensitive bool 5+
""",
    "DeleteAclsRequest": """\
DeleteAclsRequest request 31 0-3 flexible=2+
  Filters []DeleteAclsFilter 0+
DeleteAclsFilter
  ResourceTypeFilter int8 0+
  ResourceNameFilter string 0+ null=0+
  PatternTypeFilter int8 1+ default=3
  PrincipalFilter string 0+ null=0+
  HostFilter string 0+ null=0+
  Operation int8 0+
  PermissionType int8 0+
""",
    "DeleteAclsResponse": """\
DeleteAclsResponse response 31 0-3 flexible=2+
  ThrottleTimeMs int32 0+
  FilterResults []DeleteAclsFilterResult 0+
DeleteAclsFilterResult
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  MatchingAcls []DeleteAclsMatchingAcl 0+
DeleteAclsMatchingAcl
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  ResourceType int8 0+
  ResourceName string 0+
  PatternType int8 1+ default=3
  Principal string 0+
  Host string 0+
  Operation int8 0+
  PermissionType int8 0+
""",
    "DeleteGroupsRequest": """\
DeleteGroupsRequest request 42 0-3 flexible=2+
  GroupsNames []string 0+
""",
    "DeleteGroupsResponse": """\
DeleteGroupsResponse response 42 0-3 flexible=2+
  ThrottleTimeMs int32 0+
  Results []DeletableGroupResult 0+
DeletableGroupResult
  GroupId string 0+
  ErrorCode int16 0+
  ErrorMessage string 3+ null=3+ default=null ignorable
""",
    "DeleteRecordsRequest": """\
DeleteRecordsRequest request 21 0-2 flexible=2+
  Topics []DeleteRecordsTopic 0+
  TimeoutMs int32 0+
DeleteRecordsTopic
  Name string 0+
  Partitions []DeleteRecordsPartition 0+
DeleteRecordsPartition
  PartitionIndex int32 0+
  Offset int64 0+
""",
    "DeleteRecordsResponse": """\
DeleteRecordsResponse response 21 0-2 flexible=2+
  ThrottleTimeMs int32 0+
  Topics []DeleteRecordsTopicResult 0+
DeleteRecordsTopicResult
  Name string 0+
  Partitions []DeleteRecordsPartitionResult 0+
DeleteRecordsPartitionResult
  PartitionIndex int32 0+
  LowWatermark int64 0+
  ErrorCode int16 0+
""",
    "DeleteShareGroupOffsetsRequest": """\
DeleteShareGroupOffsetsRequest request 92 0 flexible=0+
  GroupId string 0+
  Topics []DeleteShareGroupOffsetsRequestTopic 0+
DeleteShareGroupOffsetsRequestTopic
  TopicName string 0+
""",
    "DeleteShareGroupOffsetsResponse": """\
DeleteShareGroupOffsetsResponse response 92 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  Responses []DeleteShareGroupOffsetsResponseTopic 0+
DeleteShareGroupOffsetsResponseTopic
  TopicName string 0+
  TopicId uuid 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "DeleteShareGroupStateRequest": """\
DeleteShareGroupStateRequest request 86 0 flexible=0+
  GroupId string 0+
  Topics []DeleteStateData 0+
DeleteStateData
  TopicId uuid 0+
  Partitions []PartitionData 0+
PartitionData
  Partition int32 0+
""",
    "DeleteShareGroupStateResponse": """\
DeleteShareGroupStateResponse response 86 0 flexible=0+
  Results []DeleteStateResult 0+
DeleteStateResult
  TopicId uuid 0+
  Partitions []PartitionResult 0+
PartitionResult
  Partition int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "DeleteTopicsRequest": """\
DeleteTopicsRequest request 20 0-6 flexible=4+
  Topics []DeleteTopicState 6+
  TopicNames []string 0-5 ignorable
  TimeoutMs int32 0+
DeleteTopicState
  Name string 6+ null=6+ default=null
  TopicId uuid 6+
""",
    "DeleteTopicsResponse": """\
DeleteTopicsResponse response 20 0-6 flexible=4+
  ThrottleTimeMs int32 1+ ignorable
  Responses []DeletableTopicResult 0+
DeletableTopicResult
  Name string 0+ null=6+
  TopicId uuid 6+ ignorable
  ErrorCode int16 0+
  ErrorMessage string 5+ null=5+ default=null ignorable
""",
    "DescribeAclsRequest": """\
DescribeAclsRequest request 29 0-3 flexible=2+
  ResourceTypeFilter int8 0+
  ResourceNameFilter string 0+ null=0+
  PatternTypeFilter int8 1+ default=3
  PrincipalFilter string 0+ null=0+
  HostFilter string 0+ null=0+
  Operation int8 0+
  PermissionType int8 0+
""",
    "DescribeAclsResponse": """\
DescribeAclsResponse response 29 0-3 flexible=2+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  Resources []DescribeAclsResource 0+
DescribeAclsResource
  ResourceType int8 0+
  ResourceName string 0+
  PatternType int8 1+ default=3
  Acls []AclDescription 0+
AclDescription
  Principal string 0+
  Host string 0+
  Operation int8 0+
  PermissionType int8 0+
""",
    "DescribeClientQuotasRequest": """\
DescribeClientQuotasRequest request 48 0-1 flexible=1+
  Components []ComponentData 0+
  Strict bool 0+
ComponentData
  EntityType string 0+
  MatchType int8 0+
  Match string 0+ null=0+
""",
    "DescribeClientQuotasResponse": """\
DescribeClientQuotasResponse response 48 0-1 flexible=1+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  Entries []EntryData 0+ null=0+
EntryData
  Entity []EntityData 0+
  Values []ValueData 0+
EntityData
  EntityType string 0+
  EntityName string 0+ null=0+
ValueData
  Key string 0+
  Value float64 0+
""",
    "DescribeClusterRequest": """\
DescribeClusterRequest request 60 0-2 flexible=0+
  IncludeClusterAuthorizedOperations bool 0+
  EndpointType int8 1+ default=1
  IncludeFencedBrokers bool 2+
""",
    "DescribeClusterResponse": """\
DescribeClusterResponse response 60 0-2 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  EndpointType int8 1+ default=1
  ClusterId string 0+
  ControllerId int32 0+ default=-1
  Brokers []DescribeClusterBroker 0+
  ClusterAuthorizedOperations int32 0+ default=-2147483648
DescribeClusterBroker
  BrokerId int32 0+
  Host string 0+
  Port int32 0+
  Rack string 0+ null=0+ default=null
  IsFenced bool 2+
""",
    "DescribeConfigsRequest": """\
DescribeConfigsRequest request 32 0-4 flexible=4+
  Resources []DescribeConfigsResource 0+
  IncludeSynonyms bool 1+
  IncludeDocumentation bool 3+
DescribeConfigsResource
  ResourceType int8 0+
  ResourceName string 0+
  ConfigurationKeys []string 0+ null=0+
""",
    "DescribeConfigsResponse": """\
DescribeConfigsResponse response 32 0-4 flexible=4+
  ThrottleTimeMs int32 0+
  Results []DescribeConfigsResult 0+
DescribeConfigsResult
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  ResourceType int8 0+
  ResourceName string 0+
  Configs []DescribeConfigsResourceResult 0+
DescribeConfigsResourceResult
  Name string 0+
  Value string 0+ null=0+
  ReadOnly bool 0+
  IsDefault bool 0
  ConfigSource int8 1+ default=-1 ignorable
  IsSensitive bool 0+
  Synonyms []DescribeConfigsSynonym 1+ ignorable
  ConfigType int8 3+ ignorable
  Documentation string 3+ null=3+ ignorable
DescribeConfigsSynonym
  Name string 1+
  Value string 1+ null=1+
  Source int8 1+
""",
    "DescribeDelegationTokenRequest": """\
DescribeDelegationTokenRequest request 41 0-3 flexible=2+
  Owners []DescribeDelegationTokenOwner 0+ null=0+
DescribeDelegationTokenOwner
  PrincipalType string 0+
  PrincipalName string 0+
""",
    "DescribeDelegationTokenResponse": """\
DescribeDelegationTokenResponse response 41 0-3 flexible=2+
  ErrorCode int16 0+
  Tokens []DescribedDelegationToken 0+
  ThrottleTimeMs int32 0+
DescribedDelegationToken
  PrincipalType string 0+
  PrincipalName string 0+
  TokenRequesterPrincipalType string 3+
  TokenRequesterPrincipalName string 3+
  IssueTimestamp int64 0+
  ExpiryTimestamp int64 0+
  MaxTimestamp int64 0+
  TokenId string 0+
  Hmac bytes 0+
  Renewers []DescribedDelegationTokenRenewer 0+
DescribedDelegationTokenRenewer
  PrincipalType string 0+
  PrincipalName string 0+
""",
    "DescribeGroupsRequest": """\
DescribeGroupsRequest request 15 0-6 flexible=5+
  Groups []string 0+
  IncludeAuthorizedOperations bool 3+
""",
    "DescribeGroupsResponse": """\
DescribeGroupsResponse response 15 0-6 flexible=5+
  ThrottleTimeMs int32 1+ ignorable
  Groups []DescribedGroup 0+
DescribedGroup
  ErrorCode int16 0+
  ErrorMessage string 6+ null=6+ default=null
  GroupId string 0+
  GroupState string 0+
  ProtocolType string 0+
  ProtocolData string 0+
  Members []DescribedGroupMember 0+
  AuthorizedOperations int32 3+ default=-2147483648
DescribedGroupMember
  MemberId string 0+
  GroupInstanceId string 4+ null=4+ default=null ignorable
  ClientId string 0+
  ClientHost string 0+
  MemberMetadata bytes 0+
  MemberAssignment bytes 0+
""",
    "DescribeLogDirsRequest": """\
DescribeLogDirsRequest request 35 0-5 flexible=2+
  Topics []DescribableLogDirTopic 0+ null=0+
DescribableLogDirTopic
  Topic string 0+
  Partitions []int32 0+
""",
    "DescribeLogDirsResponse": """\
DescribeLogDirsResponse response 35 0-5 flexible=2+
  ThrottleTimeMs int32 0+
  ErrorCode int16 3+ ignorable
  Results []DescribeLogDirsResult 0+
DescribeLogDirsResult
  ErrorCode int16 0+
  LogDir string 0+
  Topics []DescribeLogDirsTopic 0+
  TotalBytes int64 4+ default=-1 ignorable
  UsableBytes int64 4+ default=-1 ignorable
  IsCordoned bool 5+ ignorable
DescribeLogDirsTopic
  Name string 0+
  Partitions []DescribeLogDirsPartition 0+
DescribeLogDirsPartition
  PartitionIndex int32 0+
  PartitionSize int64 0+
  OffsetLag int64 0+
  IsFutureKey bool 0+
""",
    "DescribeProducersRequest": """\
DescribeProducersRequest request 61 0 flexible=0+
  Topics []TopicRequest 0+
TopicRequest
  Name string 0+
  PartitionIndexes []int32 0+
""",
    "DescribeProducersResponse": """\
DescribeProducersResponse response 61 0 flexible=0+
  ThrottleTimeMs int32 0+
  Topics []TopicResponse 0+
TopicResponse
  Name string 0+
  Partitions []PartitionResponse 0+
PartitionResponse
  PartitionIndex int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  ActiveProducers []ProducerState 0+
ProducerState
  ProducerId int64 0+
  ProducerEpoch int32 0+
  LastSequence int32 0+ default=-1
  LastTimestamp int64 0+ default=-1
  CoordinatorEpoch int32 0+
  CurrentTxnStartOffset int64 0+ default=-1
""",
    "DescribeQuorumRequest": """\
DescribeQuorumRequest request 55 0-2 flexible=0+
  Topics []TopicData 0+
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
""",
    "DescribeQuorumResponse": """\
DescribeQuorumResponse response 55 0-2 flexible=0+
  ErrorCode int16 0+
  ErrorMessage string 2+ null=2+ ignorable
  Topics []TopicData 0+
  Nodes []Node 2+
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  ErrorMessage string 2+ null=2+ ignorable
  LeaderId int32 0+
  LeaderEpoch int32 0+
  HighWatermark int64 0+
  CurrentVoters []ReplicaState 0+
  Observers []ReplicaState 0+
ReplicaState
  ReplicaId int32 0+
  ReplicaDirectoryId uuid 2+
  LogEndOffset int64 0+
  LastFetchTimestamp int64 1+ default=-1 ignorable
  LastCaughtUpTimestamp int64 1+ default=-1 ignorable
Node
  NodeId int32 2+
  Listeners []Listener 2+
Listener
  Name string 2+
  Host string 2+
  Port uint16 2+
""",
    "DescribeShareGroupOffsetsRequest": """\
DescribeShareGroupOffsetsRequest request 90 0-1 flexible=0+
  Groups []DescribeShareGroupOffsetsRequestGroup 0+
DescribeShareGroupOffsetsRequestGroup
  GroupId string 0+
  Topics []DescribeShareGroupOffsetsRequestTopic 0+ null=0+
DescribeShareGroupOffsetsRequestTopic
  TopicName string 0+
  Partitions []int32 0+
""",
    "DescribeShareGroupOffsetsResponse": """\
DescribeShareGroupOffsetsResponse response 90 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  Groups []DescribeShareGroupOffsetsResponseGroup 0+
DescribeShareGroupOffsetsResponseGroup
  GroupId string 0+
  Topics []DescribeShareGroupOffsetsResponseTopic 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
DescribeShareGroupOffsetsResponseTopic
  TopicName string 0+
  TopicId uuid 0+
  Partitions []DescribeShareGroupOffsetsResponsePartition 0+
DescribeShareGroupOffsetsResponsePartition
  PartitionIndex int32 0+
  StartOffset int64 0+
  LeaderEpoch int32 0+
  Lag int64 1+ default=-1 ignorable
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "DescribeTopicPartitionsRequest": """\
DescribeTopicPartitionsRequest request 75 0 flexible=0+
  Topics []TopicRequest 0+
  ResponsePartitionLimit int32 0+ default=2000
  Cursor Cursor 0+ null=0+ default=null
TopicRequest
  Name string 0+
Cursor
  TopicName string 0+
  PartitionIndex int32 0+
""",
    "DescribeTopicPartitionsResponse": """\
DescribeTopicPartitionsResponse response 75 0 flexible=0+
  ThrottleTimeMs int32 0+ ignorable
  Topics []DescribeTopicPartitionsResponseTopic 0+
  NextCursor Cursor 0+ null=0+ default=null
DescribeTopicPartitionsResponseTopic
  ErrorCode int16 0+
  Name string 0+ null=0+
  TopicId uuid 0+ ignorable
  IsInternal bool 0+ ignorable
  Partitions []DescribeTopicPartitionsResponsePartition 0+
  TopicAuthorizedOperations int32 0+ default=-2147483648
DescribeTopicPartitionsResponsePartition
  ErrorCode int16 0+
  PartitionIndex int32 0+
  LeaderId int32 0+
  LeaderEpoch int32 0+ default=-1 ignorable
  ReplicaNodes []int32 0+
  IsrNodes []int32 0+
  EligibleLeaderReplicas []int32 0+ null=0+ default=null
  LastKnownElr []int32 0+ null=0+ default=null
  OfflineReplicas []int32 0+ ignorable
Cursor
  TopicName string 0+
  PartitionIndex int32 0+
""",
    "DescribeTransactionsRequest": """\
DescribeTransactionsRequest request 65 0 flexible=0+
  TransactionalIds []string 0+
""",
    "DescribeTransactionsResponse": """\
DescribeTransactionsResponse response 65 0 flexible=0+
  ThrottleTimeMs int32 0+
  TransactionStates []TransactionState 0+
TransactionState
  ErrorCode int16 0+
  TransactionalId string 0+
  TransactionState string 0+
  TransactionTimeoutMs int32 0+
  TransactionStartTimeMs int64 0+
  ProducerId int64 0+
  ProducerEpoch int16 0+
  Topics []TopicData 0+
TopicData
  Topic string 0+
  Partitions []int32 0+
""",
    "DescribeUserScramCredentialsRequest": """\
DescribeUserScramCredentialsRequest request 50 0 flexible=0+
  Users []UserName 0+ null=0+
UserName
  Name string 0+
""",
    "DescribeUserScramCredentialsResponse": """\
DescribeUserScramCredentialsResponse response 50 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  Results []DescribeUserScramCredentialsResult 0+
DescribeUserScramCredentialsResult
  User string 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  CredentialInfos []CredentialInfo 0+
CredentialInfo
  Mechanism int8 0+
  Iterations int32 0+
""",
    "ElectLeadersRequest": """\
ElectLeadersRequest request 43 0-2 flexible=2+
  ElectionType int8 1+
  TopicPartitions []TopicPartitions 0+ null=0+
  TimeoutMs int32 0+ default=60000
TopicPartitions
  Topic string 0+
  Partitions []int32 0+
""",
    "ElectLeadersResponse": """\
ElectLeadersResponse response 43 0-2 flexible=2+
  ThrottleTimeMs int32 0+
  ErrorCode int16 1+
  ReplicaElectionResults []ReplicaElectionResult 0+
ReplicaElectionResult
  Topic string 0+
  PartitionResult []PartitionResult 0+
PartitionResult
  PartitionId int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "EndQuorumEpochRequest": """\
EndQuorumEpochRequest request 54 0-1 flexible=1+
  ClusterId string 0+ null=0+ default=null
  Topics []TopicData 0+
  LeaderEndpoints []LeaderEndpoint 1+ ignorable
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  LeaderId int32 0+
  LeaderEpoch int32 0+
  PreferredSuccessors []int32 0 ignorable
  PreferredCandidates []ReplicaInfo 1+ ignorable
ReplicaInfo
  CandidateId int32 1+
  CandidateDirectoryId uuid 1+
LeaderEndpoint
  Name string 1+
  Host string 1+
  Port uint16 1+
""",
    "EndQuorumEpochResponse": """\
EndQuorumEpochResponse response 54 0-1 flexible=1+
  ErrorCode int16 0+
  Topics []TopicData 0+
  NodeEndpoints []NodeEndpoint 1+ tag=0:1+
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  LeaderId int32 0+
  LeaderEpoch int32 0+
NodeEndpoint
  NodeId int32 1+
  Host string 1+
  Port uint16 1+
""",
    "EndTxnRequest": """\
EndTxnRequest request 26 0-5 flexible=3+
  TransactionalId string 0+
  ProducerId int64 0+
  ProducerEpoch int16 0+
  Committed bool 0+
""",
    "EndTxnResponse": """\
EndTxnResponse response 26 0-5 flexible=3+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ProducerId int64 5+ default=-1 ignorable
  ProducerEpoch int16 5+ default=-1 ignorable
""",
    "EnvelopeRequest": """\
EnvelopeRequest request 58 0 flexible=0+
  RequestData bytes 0+ zerocopy
  RequestPrincipal bytes 0+ null=0+
  ClientHostAddress bytes 0+
""",
    "EnvelopeResponse": """\
EnvelopeResponse response 58 0 flexible=0+
  ResponseData bytes 0+ null=0+ default=null zerocopy
  ErrorCode int16 0+
""",
    "ExpireDelegationTokenRequest": """\
ExpireDelegationTokenRequest request 40 0-2 flexible=2+
  Hmac bytes 0+
  ExpiryTimePeriodMs int64 0+
""",
    "ExpireDelegationTokenResponse": """\
ExpireDelegationTokenResponse response 40 0-2 flexible=2+
  ErrorCode int16 0+
  ExpiryTimestampMs int64 0+
  ThrottleTimeMs int32 0+
""",
    "FetchRequest": """\
FetchRequest request 1 0-18 flexible=12+
  ClusterId string 12+ null=12+ tag=0:12+ default=null ignorable
  ReplicaId int32 0-14 default=-1
  ReplicaState ReplicaState 15+ tag=1:15+
  MaxWaitMs int32 0+
  MinBytes int32 0+
  MaxBytes int32 3+ default=2147483647 ignorable
  IsolationLevel int8 4+ ignorable
  SessionId int32 7+ ignorable
  SessionEpoch int32 7+ default=-1 ignorable
  Topics []FetchTopic 0+
  ForgottenTopicsData []ForgottenTopic 7+
  RackId string 11+ ignorable
ReplicaState
  ReplicaId int32 15+ default=-1
  ReplicaEpoch int64 15+ default=-1
FetchTopic
  Topic string 0-12 ignorable
  TopicId uuid 13+ ignorable
  Partitions []FetchPartition 0+
FetchPartition
  Partition int32 0+
  CurrentLeaderEpoch int32 9+ default=-1 ignorable
  FetchOffset int64 0+
  LastFetchedEpoch int32 12+ default=-1
  LogStartOffset int64 5+ default=-1 ignorable
  PartitionMaxBytes int32 0+
  ReplicaDirectoryId uuid 17+ tag=0:17+ ignorable
  HighWatermark int64 18+ tag=1:18+ default=9223372036854775807 ignorable
ForgottenTopic
  Topic string 7-12 ignorable
  TopicId uuid 13+ ignorable
  Partitions []int32 7+
""",
    "FetchResponse": """\
FetchResponse response 1 0-18 flexible=12+
  ThrottleTimeMs int32 1+ ignorable
  ErrorCode int16 7+ ignorable
  SessionId int32 7+
  Responses []FetchableTopicResponse 0+
  NodeEndpoints []NodeEndpoint 16+ tag=0:16+
FetchableTopicResponse
  Topic string 0-12 ignorable
  TopicId uuid 13+ ignorable
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  HighWatermark int64 0+
  LastStableOffset int64 4+ default=-1 ignorable
  LogStartOffset int64 5+ default=-1 ignorable
  DivergingEpoch EpochEndOffset 12+ tag=0:12+
  CurrentLeader LeaderIdAndEpoch 12+ tag=1:12+
  SnapshotId SnapshotId 12+ tag=2:12+
  AbortedTransactions []AbortedTransaction 4+ null=4+ ignorable
  PreferredReadReplica int32 11+ default=-1
  Records records 0+ null=0+
EpochEndOffset
  Epoch int32 12+ default=-1
  EndOffset int64 12+ default=-1
LeaderIdAndEpoch
  LeaderId int32 12+ default=-1
  LeaderEpoch int32 12+ default=-1
SnapshotId
  EndOffset int64 0+ default=-1
  Epoch int32 0+ default=-1
AbortedTransaction
  ProducerId int64 4+
  FirstOffset int64 4+
NodeEndpoint
  NodeId int32 16+
  Host string 16+
  Port int32 16+
  Rack string 16+ null=16+ default=null
""",
    "FetchSnapshotRequest": """\
FetchSnapshotRequest request 59 0-1 flexible=0+
  ClusterId string 0+ null=0+ tag=0:0+ default=null
  ReplicaId int32 0+ default=-1
  MaxBytes int32 0+ default=2147483647
  Topics []TopicSnapshot 0+
TopicSnapshot
  Name string 0+
  Partitions []PartitionSnapshot 0+
PartitionSnapshot
  Partition int32 0+
  CurrentLeaderEpoch int32 0+
  SnapshotId SnapshotId 0+
  Position int64 0+
  ReplicaDirectoryId uuid 1+ tag=0:1+ ignorable
SnapshotId
  EndOffset int64 0+
  Epoch int32 0+
""",
    "FetchSnapshotResponse": """\
FetchSnapshotResponse response 59 0-1 flexible=0+
  ThrottleTimeMs int32 0+ ignorable
  ErrorCode int16 0+
  Topics []TopicSnapshot 0+
  NodeEndpoints []NodeEndpoint 1+ tag=0:1+
TopicSnapshot
  Name string 0+
  Partitions []PartitionSnapshot 0+
PartitionSnapshot
  Index int32 0+
  ErrorCode int16 0+
  SnapshotId SnapshotId 0+
  CurrentLeader LeaderIdAndEpoch 0+ tag=0:0+
  Size int64 0+
  Position int64 0+
  UnalignedRecords records 0+
SnapshotId
  EndOffset int64 0+
  Epoch int32 0+
LeaderIdAndEpoch
  LeaderId int32 0+
  LeaderEpoch int32 0+
NodeEndpoint
  NodeId int32 1+
  Host string 1+
  Port uint16 1+
""",
    "FindCoordinatorRequest": """\
FindCoordinatorRequest request 10 0-6 flexible=3+
  Key string 0-3
  KeyType int8 1+
  CoordinatorKeys []string 4+
""",
    "FindCoordinatorResponse": """\
FindCoordinatorResponse response 10 0-6 flexible=3+
  ThrottleTimeMs int32 1+ ignorable
  ErrorCode int16 0-3
  ErrorMessage string 1-3 null=1-3 ignorable
  NodeId int32 0-3
  Host string 0-3
  Port int32 0-3
  Coordinators []Coordinator 4+
Coordinator
  Key string 4+
  NodeId int32 4+
  Host string 4+
  Port int32 4+
  ErrorCode int16 4+
  ErrorMessage string 4+ null=4+ ignorable
""",
    "GetTelemetrySubscriptionsRequest": """\
GetTelemetrySubscriptionsRequest request 71 0 flexible=0+
  ClientInstanceId uuid 0+
""",
    "GetTelemetrySubscriptionsResponse": """\
GetTelemetrySubscriptionsResponse response 71 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ClientInstanceId uuid 0+
  SubscriptionId int32 0+
  AcceptedCompressionTypes []int8 0+
  PushIntervalMs int32 0+
  TelemetryMaxBytes int32 0+
  DeltaTemporality bool 0+
  RequestedMetrics []string 0+
""",
    "HeartbeatRequest": """\
HeartbeatRequest request 12 0-4 flexible=4+
  GroupId string 0+
  GenerationId int32 0+
  MemberId string 0+
  GroupInstanceId string 3+ null=3+ default=null
""",
    "HeartbeatResponse": """\
HeartbeatResponse response 12 0-4 flexible=4+
  ThrottleTimeMs int32 1+ ignorable
  ErrorCode int16 0+
""",
    "IncrementalAlterConfigsRequest": """\
IncrementalAlterConfigsRequest request 44 0-1 flexible=1+
  Resources []AlterConfigsResource 0+
  ValidateOnly bool 0+
AlterConfigsResource
  ResourceType int8 0+
  ResourceName string 0+
  Configs []AlterableConfig 0+
AlterableConfig
  Name string 0+
  ConfigOperation int8 0+
  Value string 0+ null=0+
""",
    "IncrementalAlterConfigsResponse": """\
IncrementalAlterConfigsResponse response 44 0-1 flexible=1+
  ThrottleTimeMs int32 0+
  Responses []AlterConfigsResourceResponse 0+
AlterConfigsResourceResponse
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  ResourceType int8 0+
  ResourceName string 0+
""",
    "InitProducerIdRequest": """\
InitProducerIdRequest request 22 0-6 flexible=2+ unstable=6
  TransactionalId string 0+ null=0+
  TransactionTimeoutMs int32 0+
  ProducerId int64 3+ default=-1
  ProducerEpoch int16 3+ default=-1
  Enable2Pc bool 6+
  KeepPreparedTxn bool 6+
""",
    "InitProducerIdResponse": """\
InitProducerIdResponse response 22 0-6 flexible=2+
  ThrottleTimeMs int32 0+ ignorable
  ErrorCode int16 0+
  ProducerId int64 0+ default=-1
  ProducerEpoch int16 0+
  OngoingTxnProducerId int64 6+ default=-1
  OngoingTxnProducerEpoch int16 6+ default=-1
""",
    "InitializeShareGroupStateRequest": """\
InitializeShareGroupStateRequest request 83 0 flexible=0+
  GroupId string 0+
  Topics []InitializeStateData 0+
InitializeStateData
  TopicId uuid 0+
  Partitions []PartitionData 0+
PartitionData
  Partition int32 0+
  StateEpoch int32 0+
  StartOffset int64 0+
""",
    "InitializeShareGroupStateResponse": """\
InitializeShareGroupStateResponse response 83 0 flexible=0+
  Results []InitializeStateResult 0+
InitializeStateResult
  TopicId uuid 0+
  Partitions []PartitionResult 0+
PartitionResult
  Partition int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "JoinGroupRequest": """\
JoinGroupRequest request 11 0-9 flexible=6+
  GroupId string 0+
  SessionTimeoutMs int32 0+
  RebalanceTimeoutMs int32 1+ default=-1 ignorable
  MemberId string 0+
  GroupInstanceId string 5+ null=5+ default=null
  ProtocolType string 0+
  Protocols []JoinGroupRequestProtocol 0+
  Reason string 8+ null=8+ default=null ignorable
JoinGroupRequestProtocol
  Name string 0+
  Metadata bytes 0+
""",
    "JoinGroupResponse": """\
JoinGroupResponse response 11 0-9 flexible=6+
  ThrottleTimeMs int32 2+ ignorable
  ErrorCode int16 0+
  GenerationId int32 0+ default=-1
  ProtocolType string 7+ null=7+ default=null ignorable
  ProtocolName string 0+ null=7+
  Leader string 0+
  SkipAssignment bool 9+
  MemberId string 0+
  Members []JoinGroupResponseMember 0+
JoinGroupResponseMember
  MemberId string 0+
  GroupInstanceId string 5+ null=5+ default=null ignorable
  Metadata bytes 0+
""",
    "LeaderAndIsrRequest": """\
LeaderAndIsrRequest request 4 0-7 flexible=4+
  ControllerId int32 0+
  isKRaftController bool 7+
  ControllerEpoch int32 0+
  BrokerEpoch int64 2+ default=-1 ignorable
  Type int8 5+
  UngroupedPartitionStates []LeaderAndIsrPartitionState 0-1
  TopicStates []LeaderAndIsrTopicState 2+
  LiveLeaders []LeaderAndIsrLiveLeader 0+
LeaderAndIsrPartitionState
  TopicName string 0-1 ignorable
  PartitionIndex int32 0+
  ControllerEpoch int32 0+
  Leader int32 0+
  LeaderEpoch int32 0+
  Isr []int32 0+
  PartitionEpoch int32 0+
  Replicas []int32 0+
  AddingReplicas []int32 3+ ignorable
  RemovingReplicas []int32 3+ ignorable
  IsNew bool 1+ ignorable
  LeaderRecoveryState int8 6+
LeaderAndIsrTopicState
  TopicName string 2+
  TopicId uuid 5+ ignorable
  PartitionStates []LeaderAndIsrPartitionState 2+
LeaderAndIsrLiveLeader
  BrokerId int32 0+
  HostName string 0+
  Port int32 0+
""",
    "LeaderAndIsrResponse": """\
LeaderAndIsrResponse response 4 0-7 flexible=4+
  ErrorCode int16 0+
  PartitionErrors []LeaderAndIsrPartitionError 0-4
  Topics []LeaderAndIsrTopicError 5+
LeaderAndIsrPartitionError
  TopicName string 0-4 ignorable
  PartitionIndex int32 0+
  ErrorCode int16 0+
LeaderAndIsrTopicError
  TopicId uuid 5+
  PartitionErrors []LeaderAndIsrPartitionError 5+
""",
    "LeaveGroupRequest": """\
LeaveGroupRequest request 13 0-5 flexible=4+
  GroupId string 0+
  MemberId string 0-2
  Members []MemberIdentity 3+
MemberIdentity
  MemberId string 3+
  GroupInstanceId string 3+ null=3+ default=null
  Reason string 5+ null=5+ default=null ignorable
""",
    "LeaveGroupResponse": """\
LeaveGroupResponse response 13 0-5 flexible=4+
  ThrottleTimeMs int32 1+ ignorable
  ErrorCode int16 0+
  Members []MemberResponse 3+
MemberResponse
  MemberId string 3+
  GroupInstanceId string 3+ null=3+
  ErrorCode int16 3+
""",
    "ListClientMetricsResourcesRequest": """\
ListClientMetricsResourcesRequest request 74 0 flexible=0+
""",
    "ListClientMetricsResourcesResponse": """\
ListClientMetricsResourcesResponse response 74 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ClientMetricsResources []ClientMetricsResource 0+
ClientMetricsResource
  Name string 0+
""",
    "ListConfigResourcesRequest": """\
ListConfigResourcesRequest request 74 0-1 flexible=0+
  ResourceTypes []int8 1+
""",
    "ListConfigResourcesResponse": """\
ListConfigResourcesResponse response 74 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ConfigResources []ConfigResource 0+
ConfigResource
  ResourceName string 0+
  ResourceType int8 1+ default=16 ignorable
""",
    "ListGroupsRequest": """\
ListGroupsRequest request 16 0-5 flexible=3+
  StatesFilter []string 4+
  TypesFilter []string 5+
""",
    "ListGroupsResponse": """\
ListGroupsResponse response 16 0-5 flexible=3+
  ThrottleTimeMs int32 1+ ignorable
  ErrorCode int16 0+
  Groups []ListedGroup 0+
ListedGroup
  GroupId string 0+
  ProtocolType string 0+
  GroupState string 4+ ignorable
  GroupType string 5+ ignorable
""",
    "ListOffsetsRequest": """\
ListOffsetsRequest request 2 0-11 flexible=6+
  ReplicaId int32 0+
  IsolationLevel int8 2+
  Topics []ListOffsetsTopic 0+
  TimeoutMs int32 10+ ignorable
ListOffsetsTopic
  Name string 0+
  Partitions []ListOffsetsPartition 0+
ListOffsetsPartition
  PartitionIndex int32 0+
  CurrentLeaderEpoch int32 4+ default=-1 ignorable
  Timestamp int64 0+
  MaxNumOffsets int32 0 default=1
""",
    "ListOffsetsResponse": """\
ListOffsetsResponse response 2 0-11 flexible=6+
  ThrottleTimeMs int32 2+ ignorable
  Topics []ListOffsetsTopicResponse 0+
ListOffsetsTopicResponse
  Name string 0+
  Partitions []ListOffsetsPartitionResponse 0+
ListOffsetsPartitionResponse
  PartitionIndex int32 0+
  ErrorCode int16 0+
  OldStyleOffsets []int64 0
  Timestamp int64 1+ default=-1
  Offset int64 1+ default=-1
  LeaderEpoch int32 4+ default=-1
""",
    "ListPartitionReassignmentsRequest": """\
ListPartitionReassignmentsRequest request 46 0 flexible=0+
  TimeoutMs int32 0+ default=60000
  Topics []ListPartitionReassignmentsTopics 0+ null=0+ default=null
ListPartitionReassignmentsTopics
  Name string 0+
  PartitionIndexes []int32 0+
""",
    "ListPartitionReassignmentsResponse": """\
ListPartitionReassignmentsResponse response 46 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  Topics []OngoingTopicReassignment 0+
OngoingTopicReassignment
  Name string 0+
  Partitions []OngoingPartitionReassignment 0+
OngoingPartitionReassignment
  PartitionIndex int32 0+
  Replicas []int32 0+
  AddingReplicas []int32 0+
  RemovingReplicas []int32 0+
""",
    "ListTransactionsRequest": """\
ListTransactionsRequest request 66 0-2 flexible=0+
  StateFilters []string 0+
  ProducerIdFilters []int64 0+
  DurationFilter int64 1+ default=-1
  TransactionalIdPattern string 2+ null=2+ default=null
""",
    "ListTransactionsResponse": """\
ListTransactionsResponse response 66 0-2 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  UnknownStateFilters []string 0+
  TransactionStates []TransactionState 0+
TransactionState
  TransactionalId string 0+
  ProducerId int64 0+
  TransactionState string 0+
""",
    "MetadataRequest": """\
MetadataRequest request 3 0-13 flexible=9+
  Topics []MetadataRequestTopic 0+ null=1+
  AllowAutoTopicCreation bool 4+ default=true
  IncludeClusterAuthorizedOperations bool 8-10
  IncludeTopicAuthorizedOperations bool 8+
MetadataRequestTopic
  TopicId uuid 10+ ignorable
  Name string 0+ null=10+
""",
    "MetadataResponse": """\
MetadataResponse response 3 0-13 flexible=9+
  ThrottleTimeMs int32 3+ ignorable
  Brokers []MetadataResponseBroker 0+
  ClusterId string 2+ null=2+ default=null ignorable
  ControllerId int32 1+ default=-1 ignorable
  Topics []MetadataResponseTopic 0+
  ClusterAuthorizedOperations int32 8-10 default=-2147483648
  ErrorCode int16 13+ ignorable
MetadataResponseBroker
  NodeId int32 0+
  Host string 0+
  Port int32 0+
  Rack string 1+ null=1+ default=null ignorable
MetadataResponseTopic
  ErrorCode int16 0+
  Name string 0+ null=12+
  TopicId uuid 10+ ignorable
  IsInternal bool 1+ ignorable
  Partitions []MetadataResponsePartition 0+
  TopicAuthorizedOperations int32 8+ default=-2147483648
MetadataResponsePartition
  ErrorCode int16 0+
  PartitionIndex int32 0+
  LeaderId int32 0+
  LeaderEpoch int32 7+ default=-1 ignorable
  ReplicaNodes []int32 0+
  IsrNodes []int32 0+
  OfflineReplicas []int32 5+ ignorable
""",
    "OffsetCommitRequest": """\
OffsetCommitRequest request 8 0-10 flexible=8+
  GroupId string 0+
  GenerationIdOrMemberEpoch int32 1+ default=-1 ignorable
  MemberId string 1+ ignorable
  GroupInstanceId string 7+ null=7+ default=null
  RetentionTimeMs int64 2-4 default=-1 ignorable
  Topics []OffsetCommitRequestTopic 0+
OffsetCommitRequestTopic
  Name string 0-9 ignorable
  TopicId uuid 10+ ignorable
  Partitions []OffsetCommitRequestPartition 0+
OffsetCommitRequestPartition
  PartitionIndex int32 0+
  CommittedOffset int64 0+
  CommittedLeaderEpoch int32 6+ default=-1 ignorable
  CommitTimestamp int64 1 default=-1
  CommittedMetadata string 0+ null=0+
""",
    "OffsetCommitResponse": """\
OffsetCommitResponse response 8 0-10 flexible=8+
  ThrottleTimeMs int32 3+ ignorable
  Topics []OffsetCommitResponseTopic 0+
OffsetCommitResponseTopic
  Name string 0-9 ignorable
  TopicId uuid 10+ ignorable
  Partitions []OffsetCommitResponsePartition 0+
OffsetCommitResponsePartition
  PartitionIndex int32 0+
  ErrorCode int16 0+
""",
    "OffsetDeleteRequest": """\
OffsetDeleteRequest request 47 0
  GroupId string 0+
  Topics []OffsetDeleteRequestTopic 0+
OffsetDeleteRequestTopic
  Name string 0+
  Partitions []OffsetDeleteRequestPartition 0+
OffsetDeleteRequestPartition
  PartitionIndex int32 0+
""",
    "OffsetDeleteResponse": """\
OffsetDeleteResponse response 47 0
  ErrorCode int16 0+
  ThrottleTimeMs int32 0+ ignorable
  Topics []OffsetDeleteResponseTopic 0+
OffsetDeleteResponseTopic
  Name string 0+
  Partitions []OffsetDeleteResponsePartition 0+
OffsetDeleteResponsePartition
  PartitionIndex int32 0+
  ErrorCode int16 0+
""",
    "OffsetFetchRequest": """\
OffsetFetchRequest request 9 0-10 flexible=6+
  GroupId string 0-7
  Topics []OffsetFetchRequestTopic 0-7 null=2-7
  Groups []OffsetFetchRequestGroup 8+
  RequireStable bool 7+
OffsetFetchRequestTopic
  Name string 0-7
  PartitionIndexes []int32 0-7
OffsetFetchRequestGroup
  GroupId string 8+
  MemberId string 9+ null=9+ default=null ignorable
  MemberEpoch int32 9+ default=-1 ignorable
  Topics []OffsetFetchRequestTopics 8+ null=8+
OffsetFetchRequestTopics
  Name string 8-9 ignorable
  TopicId uuid 10+ ignorable
  PartitionIndexes []int32 8+
""",
    "OffsetFetchResponse": """\
OffsetFetchResponse response 9 0-10 flexible=6+
  ThrottleTimeMs int32 3+ ignorable
  Topics []OffsetFetchResponseTopic 0-7
  ErrorCode int16 2-7 ignorable
  Groups []OffsetFetchResponseGroup 8+
OffsetFetchResponseTopic
  Name string 0-7
  Partitions []OffsetFetchResponsePartition 0-7
OffsetFetchResponsePartition
  PartitionIndex int32 0-7
  CommittedOffset int64 0-7
  CommittedLeaderEpoch int32 5-7 default=-1 ignorable
  Metadata string 0-7 null=0-7
  ErrorCode int16 0-7
OffsetFetchResponseGroup
  GroupId string 8+
  Topics []OffsetFetchResponseTopics 8+
  ErrorCode int16 8+
OffsetFetchResponseTopics
  Name string 8-9 ignorable
  TopicId uuid 10+ ignorable
  Partitions []OffsetFetchResponsePartitions 8+
OffsetFetchResponsePartitions
  PartitionIndex int32 8+
  CommittedOffset int64 8+
  CommittedLeaderEpoch int32 8+ default=-1 ignorable
  Metadata string 8+ null=8+
  ErrorCode int16 8+
""",
    "OffsetForLeaderEpochRequest": """\
OffsetForLeaderEpochRequest request 23 0-4 flexible=4+
  ReplicaId int32 3+ default=-2 ignorable
  Topics []OffsetForLeaderTopic 0+
OffsetForLeaderTopic
  Topic string 0+
  Partitions []OffsetForLeaderPartition 0+
OffsetForLeaderPartition
  Partition int32 0+
  CurrentLeaderEpoch int32 2+ default=-1 ignorable
  LeaderEpoch int32 0+
""",
    "OffsetForLeaderEpochResponse": """\
OffsetForLeaderEpochResponse response 23 0-4 flexible=4+
  ThrottleTimeMs int32 2+ ignorable
  Topics []OffsetForLeaderTopicResult 0+
OffsetForLeaderTopicResult
  Topic string 0+
  Partitions []EpochEndOffset 0+
EpochEndOffset
  ErrorCode int16 0+
  Partition int32 0+
  LeaderEpoch int32 1+ default=-1 ignorable
  EndOffset int64 0+ default=-1
""",
    "ProduceRequest": """\
ProduceRequest request 0 0-13 flexible=9+
  TransactionalId string 3+ null=3+ default=null
  Acks int16 0+
  TimeoutMs int32 0+
  TopicData []TopicProduceData 0+
TopicProduceData
  Name string 0-12 ignorable
  TopicId uuid 13+ ignorable
  PartitionData []PartitionProduceData 0+
PartitionProduceData
  Index int32 0+
  Records records 0+ null=0+
""",
    "ProduceResponse": """\
ProduceResponse response 0 0-13 flexible=9+
  Responses []TopicProduceResponse 0+
  ThrottleTimeMs int32 1+ ignorable
  NodeEndpoints []NodeEndpoint 10+ tag=0:10+
TopicProduceResponse
  Name string 0-12 ignorable
  TopicId uuid 13+ ignorable
  PartitionResponses []PartitionProduceResponse 0+
PartitionProduceResponse
  Index int32 0+
  ErrorCode int16 0+
  BaseOffset int64 0+
  LogAppendTimeMs int64 2+ default=-1 ignorable
  LogStartOffset int64 5+ default=-1 ignorable
  RecordErrors []BatchIndexAndErrorMessage 8+ ignorable
  ErrorMessage string 8+ null=8+ default=null ignorable
  CurrentLeader LeaderIdAndEpoch 10+ tag=0:10+
BatchIndexAndErrorMessage
  BatchIndex int32 8+
  BatchIndexErrorMessage string 8+ null=8+ default=null
LeaderIdAndEpoch
  LeaderId int32 10+ default=-1
  LeaderEpoch int32 10+ default=-1
NodeEndpoint
  NodeId int32 10+
  Host string 10+
  Port int32 10+
  Rack string 10+ null=10+ default=null
""",
    "PushTelemetryRequest": """\
PushTelemetryRequest request 72 0 flexible=0+
  ClientInstanceId uuid 0+
  SubscriptionId int32 0+
  Terminating bool 0+
  CompressionType int8 0+
  Metrics bytes 0+ zerocopy
""",
    "PushTelemetryResponse": """\
PushTelemetryResponse response 72 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
""",
    "ReadShareGroupStateRequest": """\
ReadShareGroupStateRequest request 84 0 flexible=0+
  GroupId string 0+
  Topics []ReadStateData 0+
ReadStateData
  TopicId uuid 0+
  Partitions []PartitionData 0+
PartitionData
  Partition int32 0+
  LeaderEpoch int32 0+
""",
    "ReadShareGroupStateResponse": """\
ReadShareGroupStateResponse response 84 0 flexible=0+
  Results []ReadStateResult 0+
ReadStateResult
  TopicId uuid 0+
  Partitions []PartitionResult 0+
PartitionResult
  Partition int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  StateEpoch int32 0+
  StartOffset int64 0+
  StateBatches []StateBatch 0+
StateBatch
  FirstOffset int64 0+
  LastOffset int64 0+
  DeliveryState int8 0+
  DeliveryCount int16 0+
""",
    "ReadShareGroupStateSummaryRequest": """\
ReadShareGroupStateSummaryRequest request 87 0-1 flexible=0+
  GroupId string 0+
  Topics []ReadStateSummaryData 0+
ReadStateSummaryData
  TopicId uuid 0+
  Partitions []PartitionData 0+
PartitionData
  Partition int32 0+
  LeaderEpoch int32 0+
""",
    "ReadShareGroupStateSummaryResponse": """\
ReadShareGroupStateSummaryResponse response 87 0-1 flexible=0+
  Results []ReadStateSummaryResult 0+
ReadStateSummaryResult
  TopicId uuid 0+
  Partitions []PartitionResult 0+
PartitionResult
  Partition int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  StateEpoch int32 0+
  LeaderEpoch int32 0+
  StartOffset int64 0+
  DeliveryCompleteCount int32 1+ default=-1 ignorable
""",
    "RemoveRaftVoterRequest": """\
RemoveRaftVoterRequest request 81 0 flexible=0+
  ClusterId string 0+ null=0+
  VoterId int32 0+
  VoterDirectoryId uuid 0+
""",
    "RemoveRaftVoterResponse": """\
RemoveRaftVoterResponse response 81 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ ignorable
""",
    "RenewDelegationTokenRequest": """\
RenewDelegationTokenRequest request 39 0-2 flexible=2+
  Hmac bytes 0+
  RenewPeriodMs int64 0+
""",
    "RenewDelegationTokenResponse": """\
RenewDelegationTokenResponse response 39 0-2 flexible=2+
  ErrorCode int16 0+
  ExpiryTimestampMs int64 0+
  ThrottleTimeMs int32 0+
""",
    "RequestHeader": """\
RequestHeader header - 0-2 flexible=2+
  RequestApiKey int16 0+
  RequestApiVersion int16 0+
  CorrelationId int32 0+
  ClientId string 1+ null=1+ ignorable inflexible
""",
    "ResponseHeader": """\
ResponseHeader header - 0-1 flexible=1+
  CorrelationId int32 0+
""",
    "SaslAuthenticateRequest": """\
SaslAuthenticateRequest request 36 0-2 flexible=2+
  AuthBytes bytes 0+
""",
    "SaslAuthenticateResponse": """\
SaslAuthenticateResponse response 36 0-2 flexible=2+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  AuthBytes bytes 0+
  SessionLifetimeMs int64 1+ ignorable
""",
    "SaslHandshakeRequest": """\
SaslHandshakeRequest request 17 0-1
  Mechanism string 0+
""",
    "SaslHandshakeResponse": """\
SaslHandshakeResponse response 17 0-1
  ErrorCode int16 0+
  Mechanisms []string 0+
""",
    "ShareAcknowledgeRequest": """\
ShareAcknowledgeRequest request 79 0-2 flexible=0+
  GroupId string 0+ null=0+ default=null
  MemberId string 0+ null=0+
  ShareSessionEpoch int32 0+
  IsRenewAck bool 2+
  Topics []AcknowledgeTopic 0+
AcknowledgeTopic
  TopicId uuid 0+
  Partitions []AcknowledgePartition 0+
AcknowledgePartition
  PartitionIndex int32 0+
  AcknowledgementBatches []AcknowledgementBatch 0+
AcknowledgementBatch
  FirstOffset int64 0+
  LastOffset int64 0+
  AcknowledgeTypes []int8 0+
""",
    "ShareAcknowledgeResponse": """\
ShareAcknowledgeResponse response 79 0-2 flexible=0+
  ThrottleTimeMs int32 0+ ignorable
  ErrorCode int16 0+ ignorable
  ErrorMessage string 0+ null=0+ default=null
  AcquisitionLockTimeoutMs int32 2+ ignorable
  Responses []ShareAcknowledgeTopicResponse 0+
  NodeEndpoints []NodeEndpoint 0+
ShareAcknowledgeTopicResponse
  TopicId uuid 0+ ignorable
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  CurrentLeader LeaderIdAndEpoch 0+
LeaderIdAndEpoch
  LeaderId int32 0+
  LeaderEpoch int32 0+
NodeEndpoint
  NodeId int32 0+
  Host string 0+
  Port int32 0+
  Rack string 0+ null=0+ default=null
""",
    "ShareFetchRequest": """\
ShareFetchRequest request 78 0-2 flexible=0+
  GroupId string 0+ null=0+ default=null
  MemberId string 0+ null=0+
  ShareSessionEpoch int32 0+
  MaxWaitMs int32 0+
  MinBytes int32 0+
  MaxBytes int32 0+ default=2147483647 ignorable
  MaxRecords int32 1+
  BatchSize int32 1+
  ShareAcquireMode int8 2+ ignorable
  IsRenewAck bool 2+
  Topics []FetchTopic 0+
  ForgottenTopicsData []ForgottenTopic 0+
FetchTopic
  TopicId uuid 0+ ignorable
  Partitions []FetchPartition 0+
FetchPartition
  PartitionIndex int32 0+
  PartitionMaxBytes int32 0
  AcknowledgementBatches []AcknowledgementBatch 0+
AcknowledgementBatch
  FirstOffset int64 0+
  LastOffset int64 0+
  AcknowledgeTypes []int8 0+
ForgottenTopic
  TopicId uuid 0+ ignorable
  Partitions []int32 0+
""",
    "ShareFetchResponse": """\
ShareFetchResponse response 78 0-2 flexible=0+
  ThrottleTimeMs int32 0+ ignorable
  ErrorCode int16 0+ ignorable
  ErrorMessage string 0+ null=0+ default=null
  AcquisitionLockTimeoutMs int32 1+
  Responses []ShareFetchableTopicResponse 0+
  NodeEndpoints []NodeEndpoint 0+
ShareFetchableTopicResponse
  TopicId uuid 0+ ignorable
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  AcknowledgeErrorCode int16 0+
  AcknowledgeErrorMessage string 0+ null=0+ default=null
  CurrentLeader LeaderIdAndEpoch 0+
  Records records 0+ null=0
  AcquiredRecords []AcquiredRecords 0+
LeaderIdAndEpoch
  LeaderId int32 0+
  LeaderEpoch int32 0+
AcquiredRecords
  FirstOffset int64 0+
  LastOffset int64 0+
  DeliveryCount int16 0+
NodeEndpoint
  NodeId int32 0+
  Host string 0+
  Port int32 0+
  Rack string 0+ null=0+ default=null
""",
    "ShareGroupDescribeRequest": """\
ShareGroupDescribeRequest request 77 0-1 flexible=0+
  GroupIds []string 0+
  IncludeAuthorizedOperations bool 0+
""",
    "ShareGroupDescribeResponse": """\
ShareGroupDescribeResponse response 77 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  Groups []DescribedGroup 0+
DescribedGroup
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  GroupId string 0+
  GroupState string 0+
  GroupEpoch int32 0+
  AssignmentEpoch int32 0+
  AssignorName string 0+
  Members []Member 0+
  AuthorizedOperations int32 0+ default=-2147483648
Member
  MemberId string 0+
  RackId string 0+ null=0+ default=null
  MemberEpoch int32 0+
  ClientId string 0+
  ClientHost string 0+
  SubscribedTopicNames []string 0+
  Assignment Assignment 0+
Assignment
  TopicPartitions []TopicPartitions 0+
TopicPartitions
  TopicId uuid 0+
  TopicName string 0+
  Partitions []int32 0+
""",
    "ShareGroupHeartbeatRequest": """\
ShareGroupHeartbeatRequest request 76 0-1 flexible=0+
  GroupId string 0+
  MemberId string 0+
  MemberEpoch int32 0+
  RackId string 0+ null=0+ default=null
  SubscribedTopicNames []string 0+ null=0+ default=null
""",
    "ShareGroupHeartbeatResponse": """\
ShareGroupHeartbeatResponse response 76 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  MemberId string 0+ null=0+ default=null
  MemberEpoch int32 0+
  HeartbeatIntervalMs int32 0+
  Assignment Assignment 0+ null=0+ default=null
Assignment
  TopicPartitions []TopicPartitions 0+
TopicPartitions
  TopicId uuid 0+
  Partitions []int32 0+
""",
    "StopReplicaRequest": """\
StopReplicaRequest request 5 0-4 flexible=2+
  ControllerId int32 0+
  isKRaftController bool 4+
  ControllerEpoch int32 0+
  BrokerEpoch int64 1+ default=-1 ignorable
  DeletePartitions bool 0-2
  UngroupedPartitions []StopReplicaPartitionV0 0
  Topics []StopReplicaTopicV1 1-2
  TopicStates []StopReplicaTopicState 3+
StopReplicaPartitionV0
  TopicName string 0
  PartitionIndex int32 0
StopReplicaTopicV1
  Name string 1-2
  PartitionIndexes []int32 1-2
StopReplicaTopicState
  TopicName string 3+
  PartitionStates []StopReplicaPartitionState 3+
StopReplicaPartitionState
  PartitionIndex int32 3+
  LeaderEpoch int32 3+ default=-1
  DeletePartition bool 3+
""",
    "StopReplicaResponse": """\
StopReplicaResponse response 5 0-4 flexible=2+
  ErrorCode int16 0+
  PartitionErrors []StopReplicaPartitionError 0+
StopReplicaPartitionError
  TopicName string 0+
  PartitionIndex int32 0+
  ErrorCode int16 0+
""",
    "StreamsGroupDescribeRequest": """\
StreamsGroupDescribeRequest request 89 0-1 flexible=0+
  GroupIds []string 0+
  IncludeAuthorizedOperations bool 0+
  IncludeTopologyDescription bool 1+
""",
    "StreamsGroupDescribeResponse": """\
StreamsGroupDescribeResponse response 89 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  Groups []DescribedGroup 0+
DescribedGroup
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  GroupId string 0+
  GroupState string 0+
  GroupEpoch int32 0+
  AssignmentEpoch int32 0+
  Topology Topology 0+ null=0+ default=null
  Members []Member 0+
  AuthorizedOperations int32 0+ default=-2147483648
  TopologyDescription TopologyDescription 1+ null=1+ default=null
  TopologyDescriptionStatus int8 1+
  AssignorName string 1+ null=1+ default=null ignorable
Topology
  Epoch int32 0+
  Subtopologies []Subtopology 0+ null=0+ default=null
Subtopology
  SubtopologyId string 0+
  SourceTopics []string 0+
  RepartitionSinkTopics []string 0+
  StateChangelogTopics []TopicInfo 0+
  RepartitionSourceTopics []TopicInfo 0+
TopicInfo
  Name string 0+
  Partitions int32 0+
  ReplicationFactor int16 0+
  TopicConfigs []KeyValue 0+
KeyValue
  Key string 0+
  Value string 0+
Member
  MemberId string 0+
  MemberEpoch int32 0+
  InstanceId string 0+ null=0+ default=null
  RackId string 0+ null=0+ default=null
  ClientId string 0+
  ClientHost string 0+
  TopologyEpoch int32 0+
  ProcessId string 0+
  UserEndpoint Endpoint 0+ null=0+ default=null
  ClientTags []KeyValue 0+
  TaskOffsets []TaskOffset 0+
  TaskEndOffsets []TaskOffset 0+
  Assignment Assignment 0+
  TargetAssignment Assignment 0+
  IsClassic bool 0+
Endpoint
  Host string 0+
  Port uint16 0+
TaskOffset
  SubtopologyId string 0+
  Partition int32 0+
  Offset int64 0+
Assignment
  ActiveTasks []TaskIds 0+
  StandbyTasks []TaskIds 0+
  WarmupTasks []TaskIds 0+
TaskIds
  SubtopologyId string 0+
  Partitions []int32 0+
TopologyDescription
  Subtopologies []TopologyDescriptionSubtopology 1+
  GlobalStores []TopologyDescriptionGlobalStore 1+
TopologyDescriptionSubtopology
  SubtopologyId string 1+
  Nodes []TopologyDescriptionNode 1+
TopologyDescriptionNode
  Name string 1+
  NodeType int8 1+
  SourceTopics []string 1+
  SinkTopic string 1+ null=1+ default=null
  Stores []string 1+
  Successors []string 1+
TopologyDescriptionGlobalStore
  Source TopologyDescriptionNode 1+
  Processor TopologyDescriptionNode 1+
""",
    "StreamsGroupHeartbeatRequest": """\
StreamsGroupHeartbeatRequest request 88 0-1 flexible=0+
  GroupId string 0+
  MemberId string 0+
  MemberEpoch int32 0+
  EndpointInformationEpoch int32 0+
  InstanceId string 0+ null=0+ default=null
  RackId string 0+ null=0+ default=null
  RebalanceTimeoutMs int32 0+ default=-1
  Topology Topology 0+ null=0+ default=null
  ActiveTasks []TaskIds 0+ null=0+ default=null
  StandbyTasks []TaskIds 0+ null=0+ default=null
  WarmupTasks []TaskIds 0+ null=0+ default=null
  ProcessId string 0+ null=0+ default=null
  UserEndpoint Endpoint 0+ null=0+ default=null
  ClientTags []KeyValue 0+ null=0+ default=null
  TaskOffsets []TaskOffset 0+ null=0+ default=null
  TaskEndOffsets []TaskOffset 0+ null=0+ default=null
  ShutdownApplication bool 0+
Topology
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
  TopicConfigs []KeyValue 0+
KeyValue
  Key string 0+
  Value string 0+
CopartitionGroup
  SourceTopics []int16 0+
  SourceTopicRegex []int16 0+
  RepartitionSourceTopics []int16 0+
TaskIds
  SubtopologyId string 0+
  Partitions []int32 0+
Endpoint
  Host string 0+
  Port uint16 0+
TaskOffset
  SubtopologyId string 0+
  Partition int32 0+
  Offset int64 0+
""",
    "StreamsGroupHeartbeatResponse": """\
StreamsGroupHeartbeatResponse response 88 0-1 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
  MemberId string 0+
  MemberEpoch int32 0+
  HeartbeatIntervalMs int32 0+
  AcceptableRecoveryLagLegacy int32 0
  TaskOffsetIntervalMs int32 0+
  AcceptableRecoveryLag int64 1+ default=-1 ignorable
  Status []Status 0+ null=0+
  ActiveTasks []TaskIds 0+ null=0+ default=null
  StandbyTasks []TaskIds 0+ null=0+ default=null
  WarmupTasks []TaskIds 0+ null=0+ default=null
  TopologyDescriptionRequired bool 1+
  EndpointInformationEpoch int32 0+
  PartitionsByUserEndpoint []EndpointToPartitions 0+ null=0+ default=null
Status
  StatusCode int8 0+
  StatusDetail string 0+
TaskIds
  SubtopologyId string 0+
  Partitions []int32 0+
EndpointToPartitions
  UserEndpoint Endpoint 0+
  ActivePartitions []TopicPartition 0+
  StandbyPartitions []TopicPartition 0+
Endpoint
  Host string 0+
  Port uint16 0+
TopicPartition
  Topic string 0+
  Partitions []int32 0+
""",
    "StreamsGroupTopologyDescriptionUpdateRequest": """\
StreamsGroupTopologyDescriptionUpdateRequest request 93 0 flexible=0+
  GroupId string 0+
  MemberId string 0+
  TopologyEpoch int32 0+
  TopologyDescription TopologyDescription 0+
TopologyDescription
  Subtopologies []TopologyDescriptionSubtopology 0+
  GlobalStores []TopologyDescriptionGlobalStore 0+
TopologyDescriptionSubtopology
  SubtopologyId string 0+
  Nodes []TopologyDescriptionNode 0+
TopologyDescriptionNode
  Name string 0+
  NodeType int8 0+
  SourceTopics []string 0+
  SinkTopic string 0+ null=0+ default=null
  Stores []string 0+
  Successors []string 0+
TopologyDescriptionGlobalStore
  Source TopologyDescriptionNode 0+
  Processor TopologyDescriptionNode 0+
""",
    "StreamsGroupTopologyDescriptionUpdateResponse": """\
StreamsGroupTopologyDescriptionUpdateResponse response 93 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "SyncGroupRequest": """\
SyncGroupRequest request 14 0-5 flexible=4+
  GroupId string 0+
  GenerationId int32 0+
  MemberId string 0+
  GroupInstanceId string 3+ null=3+ default=null
  ProtocolType string 5+ null=5+ default=null ignorable
  ProtocolName string 5+ null=5+ default=null ignorable
  Assignments []SyncGroupRequestAssignment 0+
SyncGroupRequestAssignment
  MemberId string 0+
  Assignment bytes 0+
""",
    "SyncGroupResponse": """\
SyncGroupResponse response 14 0-5 flexible=4+
  ThrottleTimeMs int32 1+ ignorable
  ErrorCode int16 0+
  ProtocolType string 5+ null=5+ default=null ignorable
  ProtocolName string 5+ null=5+ default=null ignorable
  Assignment bytes 0+
""",
    "TxnOffsetCommitRequest": """\
TxnOffsetCommitRequest request 28 0-6 flexible=3+
  TransactionalId string 0+
  GroupId string 0+
  ProducerId int64 0+
  ProducerEpoch int16 0+
  GenerationIdOrMemberEpoch int32 3+ default=-1
  MemberId string 3+
  GroupInstanceId string 3+ null=3+ default=null
  Topics []TxnOffsetCommitRequestTopic 0+
TxnOffsetCommitRequestTopic
  Name string 0-5 ignorable
  TopicId uuid 6+ ignorable
  Partitions []TxnOffsetCommitRequestPartition 0+
TxnOffsetCommitRequestPartition
  PartitionIndex int32 0+
  CommittedOffset int64 0+
  CommittedLeaderEpoch int32 2+ default=-1 ignorable
  CommittedMetadata string 0+ null=0+
""",
    "TxnOffsetCommitResponse": """\
TxnOffsetCommitResponse response 28 0-6 flexible=3+
  ThrottleTimeMs int32 0+
  Topics []TxnOffsetCommitResponseTopic 0+
TxnOffsetCommitResponseTopic
  Name string 0-5 ignorable
  TopicId uuid 6+ ignorable
  Partitions []TxnOffsetCommitResponsePartition 0+
TxnOffsetCommitResponsePartition
  PartitionIndex int32 0+
  ErrorCode int16 0+
""",
    "UnregisterBrokerRequest": """\
UnregisterBrokerRequest request 64 0 flexible=0+
  BrokerId int32 0+
""",
    "UnregisterBrokerResponse": """\
UnregisterBrokerResponse response 64 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "UnregisterControllerRequest": """\
UnregisterControllerRequest request 94 0 flexible=0+
  ControllerId int32 0+
""",
    "UnregisterControllerResponse": """\
UnregisterControllerResponse response 94 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "UpdateFeaturesRequest": """\
UpdateFeaturesRequest request 57 0-2 flexible=0+
  timeoutMs int32 0+ default=60000
  FeatureUpdates []FeatureUpdateKey 0+
  ValidateOnly bool 1+
FeatureUpdateKey
  Feature string 0+
  MaxVersionLevel int16 0+
  AllowDowngrade bool 0
  UpgradeType int8 1+ default=1
""",
    "UpdateFeaturesResponse": """\
UpdateFeaturesResponse response 57 0-2 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
  Results []UpdatableFeatureResult 0-1 ignorable
UpdatableFeatureResult
  Feature string 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+
""",
    "UpdateMetadataRequest": """\
UpdateMetadataRequest request 6 0-8 flexible=6+
  ControllerId int32 0+
  isKRaftController bool 8+
  Type int8 8+ tag=0:8+
  ControllerEpoch int32 0+
  BrokerEpoch int64 5+ default=-1 ignorable
  UngroupedPartitionStates []UpdateMetadataPartitionState 0-4
  TopicStates []UpdateMetadataTopicState 5+
  LiveBrokers []UpdateMetadataBroker 0+
UpdateMetadataPartitionState
  TopicName string 0-4 ignorable
  PartitionIndex int32 0+
  ControllerEpoch int32 0+
  Leader int32 0+
  LeaderEpoch int32 0+
  Isr []int32 0+
  ZkVersion int32 0+
  Replicas []int32 0+
  OfflineReplicas []int32 4+ ignorable
UpdateMetadataTopicState
  TopicName string 5+
  TopicId uuid 7+ ignorable
  PartitionStates []UpdateMetadataPartitionState 5+
UpdateMetadataBroker
  Id int32 0+
  V0Host string 0 ignorable
  V0Port int32 0 ignorable
  Endpoints []UpdateMetadataEndpoint 1+ ignorable
  Rack string 2+ null=2+ ignorable
UpdateMetadataEndpoint
  Port int32 1+
  Host string 1+
  Listener string 3+ ignorable
  SecurityProtocol int16 1+
""",
    "UpdateMetadataResponse": """\
UpdateMetadataResponse response 6 0-8 flexible=6+
  ErrorCode int16 0+
""",
    "UpdateRaftVoterRequest": """\
UpdateRaftVoterRequest request 82 0 flexible=0+
  ClusterId string 0+ null=0+
  CurrentLeaderEpoch int32 0+
  VoterId int32 0+
  VoterDirectoryId uuid 0+
  Listeners []Listener 0+
  KRaftVersionFeature KRaftVersionFeature 0+
Listener
  Name string 0+
  Host string 0+
  Port uint16 0+
KRaftVersionFeature
  MinSupportedVersion int16 0+
  MaxSupportedVersion int16 0+
""",
    "UpdateRaftVoterResponse": """\
UpdateRaftVoterResponse response 82 0 flexible=0+
  ThrottleTimeMs int32 0+
  ErrorCode int16 0+
  CurrentLeader CurrentLeader 0+ tag=0:0+
CurrentLeader
  LeaderId int32 0+ default=-1
  LeaderEpoch int32 0+ default=-1
  Host string 0+
  Port int32 0+
""",
    "VoteRequest": """\
VoteRequest request 52 0-2 flexible=0+
  ClusterId string 0+ null=0+ default=null
  VoterId int32 1+ default=-1 ignorable
  Topics []TopicData 0+
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ReplicaEpoch int32 0+
  ReplicaId int32 0+
  ReplicaDirectoryId uuid 1+ ignorable
  VoterDirectoryId uuid 1+ ignorable
  LastOffsetEpoch int32 0+
  LastOffset int64 0+
  PreVote bool 2+
""",
    "VoteResponse": """\
VoteResponse response 52 0-2 flexible=0+
  ErrorCode int16 0+
  Topics []TopicData 0+
  NodeEndpoints []NodeEndpoint 1+ tag=0:1+
TopicData
  TopicName string 0+
  Partitions []PartitionData 0+
PartitionData
  PartitionIndex int32 0+
  ErrorCode int16 0+
  LeaderId int32 0+
  LeaderEpoch int32 0+
  VoteGranted bool 0+
NodeEndpoint
  NodeId int32 1+
  Host string 1+
  Port uint16 1+
""",
    "WriteShareGroupStateRequest": """\
WriteShareGroupStateRequest request 85 0-1 flexible=0+
  GroupId string 0+
  Topics []WriteStateData 0+
WriteStateData
  TopicId uuid 0+
  Partitions []PartitionData 0+
PartitionData
  Partition int32 0+
  StateEpoch int32 0+
  LeaderEpoch int32 0+
  StartOffset int64 0+
  DeliveryCompleteCount int32 1+ default=-1 ignorable
  StateBatches []StateBatch 0+
StateBatch
  FirstOffset int64 0+
  LastOffset int64 0+
  DeliveryState int8 0+
  DeliveryCount int16 0+
""",
    "WriteShareGroupStateResponse": """\
WriteShareGroupStateResponse response 85 0-1 flexible=0+
  Results []WriteStateResult 0+
WriteStateResult
  TopicId uuid 0+
  Partitions []PartitionResult 0+
PartitionResult
  Partition int32 0+
  ErrorCode int16 0+
  ErrorMessage string 0+ null=0+ default=null
""",
    "WriteTxnMarkersRequest": """\
WriteTxnMarkersRequest request 27 0-2 flexible=1+
  Markers []WritableTxnMarker 0+
WritableTxnMarker
  ProducerId int64 0+
  ProducerEpoch int16 0+
  TransactionResult bool 0+
  Topics []WritableTxnMarkerTopic 0+
  CoordinatorEpoch int32 0+
  TransactionVersion int8 2+ ignorable
WritableTxnMarkerTopic
  Name string 0+
  PartitionIndexes []int32 0+
""",
    "WriteTxnMarkersResponse": """\
WriteTxnMarkersResponse response 27 0-2 flexible=1+
  Markers []WritableTxnMarkerResult 0+
WritableTxnMarkerResult
  ProducerId int64 0+
  Topics []WritableTxnMarkerTopicResult 0+
WritableTxnMarkerTopicResult
  Name string 0+
  Partitions []WritableTxnMarkerPartitionResult 0+
WritableTxnMarkerPartitionResult
  PartitionIndex int32 0+
  ErrorCode int16 0+
""",
}
