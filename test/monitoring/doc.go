// Package monitoring tests what docs/ops gives to operators: alert rules, runbooks and a dashboard.
//
//   - without Prometheus: every alert has a runbook with the agreed headings; every metric and label in rules and panels
//     is in a node's registry; commands in runbooks are accepted by the programs, and lines of logs are in the source; the
//     dashboard is complete (documents_test.go, metrics_test.go, commands_test.go, dashboard_test.go);
//   - with Debian's package prometheus: promtool runs the tests of the rules (promtool_test.go). With QUORUMLOCK_CHECK=1, a
//     Prometheus scrapes three nodes under load: every expression of the dashboard returns data (panels_test.go), and
//     alerts fire by their causes and end (alerts_test.go), by rules whose durations are divided (rules_test.go).
//
// Without the package, tests that need it are skipped; with QUORUMLOCK_CHECK=1, they install it.
package monitoring
