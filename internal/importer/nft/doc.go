// Package nft reads the output of nft list ruleset, as text or as JSON, into a saved.Ruleset. Text goes through nft
// itself in a namespace of its own (text.go), which answers in JSON. A statement or expression that has no equal in a
// policy becomes an unknown part of its rule's condition.
//
// Read text.go and nft.go first: they have Read, and the objects of a listing. rule.go reads the statements of a rule.
// match.go, select.go, compare.go and value.go read its matches. lines.go and print.go find or write the text of a rule
// for messages.
package nft
