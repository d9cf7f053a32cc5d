@0xb3f1c2d97a5e4460;
# What Shepherd and Worker say to each other. One struct per dataclass of messages.py and wire/transfer_messages.py,
# with the same field names in camelCase; wire/codec.py holds the table that joins them.
#
# Evolution: append fields and union members, never renumber, never change a type. A peer that meets a union member it
# does not know reports that the other side is newer. Change PROTOCOL_VERSION (messages.py) when the meaning changes.

struct ControlMessage {
  union {
    hello @0 :Hello;
    welcome @1 :Welcome;
    heartbeat @2 :Heartbeat;
    heartbeatReply @3 :HeartbeatReply;
    ready @4 :Ready;
    assign @5 :Assign;
    revoke @6 :Revoke;
    update @7 :Update;
    updateReply @8 :UpdateReply;
    failure @9 :Failure;
    goodbye @10 :Goodbye;
    merged @11 :Merged;
    askStates @12 :AskStates;
    states @13 :States;
    repeat @14 :Repeat;
    repeated @15 :Repeated;
    profile @16 :Profile;
    peers @17 :Peers;
    resume @18 :Resume;
  }
}

struct TransferMessage {
  union {
    fetch @0 :Fetch;
    push @1 :Push;
    begin @2 :Begin;
    credit @3 :Credit;
    stored @4 :Stored;
  }
}

struct Refusal {
  code @0 :UInt16;
  reason @1 :Text;
}

struct Blob {
  digest @0 :Data;  # SHA-256, 32 bytes
  size @1 :UInt64;
}

struct DataRange {
  start @0 :UInt64;
  count @1 :UInt64;
}

struct Lease {
  leaseId @0 :UInt64;
  generation @1 :UInt64;
  round @2 :UInt64;
  data @3 :DataRange;
  firstStep @4 :UInt64;
  fragment @5 :UInt32;
  fragments @6 :List(UInt32);
  fresh @7 :Bool;
  adopt @8 :List(Adoption);
  deadlineSeconds @9 :Float64;
  further @10 :List(DataRange);
  lastStep @11 :UInt64;
  after @12 :UInt64;
}

struct Adoption {
  fragment @0 :UInt32;
  version @1 :UInt64;
  step @2 :UInt64;
  parameters @3 :Blob;  # absent: not merged yet
  change @4 :Blob;  # may be absent
}

struct Hello {
  protocolVersion @0 :UInt32;
  worker @1 :Text;
  incarnation @2 :Data;
  devices @3 :List(Text);
  memoryBytes @4 :UInt64;
  hardware @5 :Text;
  listens @6 :Text;
}

struct Welcome {
  workerId @0 :UInt64;
  generation @1 :UInt64;
  runId @2 :Text;
  heartbeatSeconds @3 :Float64;
  run @4 :Text;  # JSON
  blobs @5 :List(Blob);
  profile @6 :List(SiteMeasurement);
  epoch @7 :UInt64;
  takeovers @8 :List(Takeover);
}

struct Takeover {
  mark @0 :Data;
  version @1 :UInt64;
}

struct SiteMeasurement {
  subject @0 :Text;
  kernel @1 :Text;
  ratio @2 :Float64;
}

struct Profile {
  chosen @0 :Text;
  rows @1 :List(SiteMeasurement);
}

struct PeerAddress {
  worker @0 :Text;
  address @1 :Text;
}

struct Resume {
  lease @0 :Lease;
}

struct Peers {
  members @0 :List(PeerAddress);
  left @1 :List(Text);
  changes @2 :Bool;  # else these are all members
}

struct Heartbeat {
  sequence @0 :UInt64;
  generation @1 :UInt64;
  leaseId @2 :UInt64;
  stepsDone @3 :UInt64;
  secondsPerStep @4 :Float64;
  batches @5 :UInt64;
}

struct HeartbeatReply {
  sequence @0 :UInt64;
  leaseId @1 :UInt64;
  batches @2 :UInt64;
  lastStep @3 :UInt64;
  version @4 :UInt64;
}

struct Ready {
  generation @0 :UInt64;
}

struct Assign {
  lease @0 :Lease;
}

struct Revoke {
  leaseId @0 :UInt64;
  reason @1 :Text;
}

struct Update {
  leaseId @0 :UInt64;
  generation @1 :UInt64;
  round @2 :UInt64;
  payload @3 :Blob;
  steps @4 :UInt64;
  tokens @5 :UInt64;
  losses @6 :List(Float64);  # of the steps, or means of equal pieces of them
  seconds @7 :Float64;
  commitments @8 :List(Data);
  settled @9 :List(Settlement);
}

struct UpdateReply {
  leaseId @0 :UInt64;
  outcome @1 :Text;  # admitted, carried or refused
  reason @2 :Text;
}

struct Merged {
  fragment @0 :UInt32;
  version @1 :UInt64;
  parameters @2 :Blob;
  change @3 :Blob;  # may be absent
}

struct Settlement {
  fragment @0 :UInt32;
  outcome @1 :Text;
}

struct AskStates {
  audit @0 :UInt64;
  digests @1 :List(Data);
}

struct States {
  audit @0 :UInt64;
  blobs @1 :List(Blob);
}

struct Repeat {
  audit @0 :UInt64;
  lease @1 :Lease;
  before @2 :Blob;  # absent: the other worker had no state yet
  settled @3 :List(Settlement);
  first @4 :UInt64;
  steps @5 :UInt64;
  opening @6 :Bool;
  push @7 :Bool;
}

struct Repeated {
  audit @0 :UInt64;
  after @1 :Blob;
  payload @2 :Blob;  # absent: the push was not wanted
}

struct Failure {
  generation @0 :UInt64;
  leaseId @1 :UInt64;
  reason @2 :Text;
  kind @3 :Text;  # empty, or one of FailureKind
}

struct Goodbye {
  finished @0 :Bool;
  reason @1 :Text;
}

struct Fetch {
  blob @0 :Blob;
  offset @1 :UInt64;  # first byte wanted
  stop @2 :UInt64;  # one past the last
  windowBytes @3 :UInt64;  # bytes that may be on the way without credit
  chunkBytes @4 :UInt64;  # largest chunk wanted
}

struct Push {
  blob @0 :Blob;
  windowBytes @1 :UInt64;
  chunkBytes @2 :UInt64;
  offset @3 :UInt64;  # first byte offered
  stop @4 :UInt64;  # one past the last
}

struct Begin {
  offset @0 :UInt64;
  stop @1 :UInt64;
  windowBytes @2 :UInt64;
  chunkBytes @3 :UInt64;
}

struct Credit {
  offset @0 :UInt64;  # every byte before it has been taken
}

struct Stored {
  digest @0 :Data;
}
