"""The only package that sees gRPC and protobuf."""

import os

# gRPC's preparation for a fork can wait for ever for a thread of its own that is just ending (seen with 1.85), in whichever
# process starts another by fork and exec. None of ours goes on as a fork.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
