"""What holds for all tests."""

# It sets how gRPC behaves when a process is started, which is to be set before gRPC is imported.
import pyscheduler.edge  # noqa: F401
