// SPDX-License-Identifier: Apache-2.0

// Package history keeps the cost of Floodwall, commit by commit, in a file that grows: a JSON object a line, oldest first. It measures nothing
// itself. Counts come from package guard, and ratios from a report of `bench program`.
//
//	lines, err := history.Read("docs/bench/history.jsonl")
//	added, err := history.Append("docs/bench/history.jsonl", history.Line{Commit: head, Kind: history.Measured, Instructions: counts})
//	err = history.Chart(lines).WriteSVG(out)
package history
