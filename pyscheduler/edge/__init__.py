"""The only package that sees gRPC and protobuf."""
