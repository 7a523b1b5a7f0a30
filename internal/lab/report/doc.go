// Package report says what changed between two runs of the bench, beyond noise. It is arithmetic on their reports.

package report
