// Package yamltree reads a YAML document into a tree of values. Each value has its place in the file. Mistakes have a line, a column and
// a remedy. Every value is text as it was written, and a word with colons in it needs no quotes. Tags, merge keys and second documents are
// refused. The package knows no key of a policy, but its remedies name policies, since Floodwall reads nothing else in this way.
//
// Read read.go first, then node.go. syntax.go explains the messages of the YAML library.
//
//	root, mistakes := yamltree.Read(text)
//	rules := root.Get("rules")
//	fmt.Print(rules.Pos.Line, rules.Words())
package yamltree
