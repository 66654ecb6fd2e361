// Command cron runs a job once a day, however many machines start it.
package main
