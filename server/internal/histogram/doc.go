// Package histogram has the options of histograms for Prometheus that are classic and native at once. A scraper that asks
// for native histograms gets those; any other gets the classic buckets.
package histogram
