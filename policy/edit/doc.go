// SPDX-License-Identifier: Apache-2.0

// Package edit adds rules and services to the text of a policy, and removes them. All other bytes of the text stay as they are: comments, order,
// indentation and line ends. After each edit the package parses the text again. If anything besides the entry has changed, it returns an error and no
// text. So a layout that it does not understand costs an error, and never a rule. It reads and writes no file.
//
//	text, err = edit.Insert(text, edit.Services, edit.Last, edit.Entry{Keys: []string{"name: web", "port: tcp/80"}})
//	text, err = edit.Remove(text, edit.Services, 0)
//
// insert.go and remove.go have a part for lists with dashes and a part for lists in brackets. Each part of remove.go is the inverse of the same part
// of insert.go: Remove of an inserted entry returns the bytes from before.
package edit
