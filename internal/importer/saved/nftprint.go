// SPDX-License-Identifier: Apache-2.0

package saved

import (
	"encoding/json"
	"fmt"
	"strings"
)

// statements returns the text of a rule for messages, similar to nft's output.
func statements(expr []json.RawMessage) string {
	var words []string
	for _, raw := range expr {
		var s map[string]any
		if json.Unmarshal(raw, &s) != nil {
			continue
		}
		for name, body := range s {
			words = append(words, statementText(name, body))
		}
	}
	return strings.Join(words, " ")
}

func statementText(name string, body any) string {
	switch name {
	case "match":
		op, _ := member(body, "op").(string)
		if op == "==" || op == "in" {
			return expression(member(body, "left")) + " " + expression(member(body, "right"))
		}
		return expression(member(body, "left")) + " " + op + " " + expression(member(body, "right"))
	case "vmap":
		return expression(member(body, "key")) + " vmap " + expression(member(body, "data"))
	case "jump", "goto":
		return fmt.Sprintf("%s %v", name, member(body, "target"))
	case "limit":
		return fmt.Sprintf("limit rate %v/%v", member(body, "rate"), member(body, "per"))
	case "set":
		return fmt.Sprintf("%v %v { %s }", member(body, "op"), member(body, "set"), expression(member(body, "elem")))
	}
	return name
}

// expression returns the text of a value or of an expression.
func expression(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case []any:
		return list(x, ", ")
	case map[string]any:
		for name, body := range x {
			return object(name, body, x)
		}
	}
	return compact(v)
}

func list(items []any, sep string) string {
	var words []string
	for _, i := range items {
		words = append(words, expression(i))
	}
	return strings.Join(words, sep)
}

// object returns the text of an expression that is a JSON object with one member.
func object(name string, body any, whole map[string]any) string {
	items, _ := body.([]any)
	switch name {
	case "payload":
		if member(body, "protocol") == nil {
			return fmt.Sprintf("@%v,%v,%v", member(body, "base"), member(body, "offset"), member(body, "len"))
		}
		return fmt.Sprintf("%v %v", member(body, "protocol"), member(body, "field"))
	case "tcp option":
		return strings.TrimSuffix(fmt.Sprintf("tcp option %v %v", member(body, "name"), member(body, "field")), " <nil>")
	case "meta", "ct":
		return fmt.Sprintf("%s %v", name, member(body, "key"))
	case "fib":
		flags := listOrOne(member(body, "flags"))
		return fmt.Sprintf("fib %s %v", list(flags, " . "), member(body, "result"))
	case "prefix":
		return fmt.Sprintf("%v/%v", member(body, "addr"), member(body, "len"))
	case "range":
		return list(items, "-")
	case "concat":
		return list(items, " . ")
	case "set":
		return "{ " + elements(items) + " }"
	case "elem":
		return expression(member(body, "val"))
	case "&", "|":
		return list(items, " "+name+" ")
	case "accept", "drop", "return", "continue":
		return name
	case "jump", "goto":
		return fmt.Sprintf("%s %v", name, member(body, "target"))
	}
	return compact(whole)
}

// elements returns the text of the elements of a set, or of a map, whose elements have a colon.
func elements(items []any) string {
	var words []string
	for _, i := range items {
		if pair, ok := i.([]any); ok && len(pair) == 2 {
			words = append(words, expression(pair[0])+" : "+expression(pair[1]))
		} else {
			words = append(words, expression(i))
		}
	}
	return strings.Join(words, ", ")
}
