// SPDX-License-Identifier: Apache-2.0

// Package report has the results of a run of the bench: rows, bars, claims, curves and tables. It writes and reads them, compares two runs, and
// makes a page of them. It measures nothing.
//
//	old, err := report.Read("before.json")
//	err = report.Compare(old, now, report.CompareOptions{}).WriteText(os.Stdout, true)
package report
