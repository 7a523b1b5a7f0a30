// SPDX-License-Identifier: Apache-2.0

// Package report is what a run of the bench found: results, bars, claims, curves and tables; how they are written and
// read again, compared with another run, and shown as a page. It measures nothing.
//
//	old, err := report.Read("before.json")
//	err = report.Compare(old, now, report.CompareOptions{}).WriteText(os.Stdout, true)
package report
