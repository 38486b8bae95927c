"""Metrics of cards: exporters and Prometheus."""
