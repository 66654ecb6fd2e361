// Package metrics counts what a node does, for Prometheus.
package metrics
