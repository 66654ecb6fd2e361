// Package metrics counts what happens on the Redis port, for Prometheus.
package metrics
