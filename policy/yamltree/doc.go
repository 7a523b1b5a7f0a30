// SPDX-License-Identifier: Apache-2.0

// Package yamltree parses a YAML document into a tree of values. Each value has its position in the file. Mistakes have a line, a column and a
// remedy. Every value is text as written, and a word with colons in it needs no quotes. Tags, merge keys and second documents are rejected. The
// package does not know the keys of a policy, but its remedies mention policies, because Floodwall parses no other YAML with it.
//
// Read read.go first, then node.go. syntax.go explains the messages of the YAML library.
//
//	root, mistakes := yamltree.Read(text)
//	rules := root.Get("rules")
//	fmt.Print(rules.Pos.Line, rules.Words())
package yamltree
