// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Schema returns the JSON schema (draft 2020-12) of a policy file, with which editors complete and explain keys. It accepts every policy that Parse
// accepts, and rejects only some of the others: it cannot check the names of sets and rules, address families and address arithmetic.
func Schema() []byte {
	s := object(topKeys)
	s.Dialect, s.Title, s.Definitions = "https://json-schema.org/draft/2020-12/schema", "Floodwall policy", definitions
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(s); err != nil {
		panic(err) // an example or a default in a table is no JSON
	}
	return text.Bytes()
}

// schema is a part of the JSON schema. Its fields are keywords.
type schema struct {
	Dialect              string              `json:"$schema,omitempty"`
	Title                string              `json:"title,omitempty"` // the type in the reference
	Description          string              `json:"description,omitempty"`
	Ref                  string              `json:"$ref,omitempty"`
	Type                 types               `json:"type,omitempty"`
	Enum                 []any               `json:"enum,omitempty"`
	Pattern              string              `json:"pattern,omitempty"`
	MinLength            int                 `json:"minLength,omitempty"`
	MaxLength            int                 `json:"maxLength,omitempty"`
	Minimum              any                 `json:"minimum,omitempty"`
	Maximum              any                 `json:"maximum,omitempty"`
	AnyOf                []*schema           `json:"anyOf,omitempty"`
	OneOf                []*schema           `json:"oneOf,omitempty"`
	Not                  *schema             `json:"not,omitempty"`
	Items                *schema             `json:"items,omitempty"`
	MinItems             int                 `json:"minItems,omitempty"`
	MaxItems             int                 `json:"maxItems,omitempty"`
	UniqueItems          bool                `json:"uniqueItems,omitempty"`
	PropertyNames        *schema             `json:"propertyNames,omitempty"`
	AdditionalProperties any                 `json:"additionalProperties,omitempty"` // false, or a schema
	MinProperties        int                 `json:"minProperties,omitempty"`
	Required             []string            `json:"required,omitempty"`
	DependentRequired    map[string][]string `json:"dependentRequired,omitempty"`
	Properties           properties          `json:"properties,omitempty"`
	Default              json.RawMessage     `json:"default,omitempty"`
	Examples             json.RawMessage     `json:"examples,omitempty"`
	Definitions          map[string]*schema  `json:"$defs,omitempty"`

	complete func(*schema) // adds the parts that take long to make; it is called only when the schema is written, which most commands never do
}

// MarshalJSON returns the schema as JSON, with the parts that complete adds.
func (s *schema) MarshalJSON() ([]byte, error) {
	type written schema
	whole := *s
	if whole.complete != nil {
		whole.complete(&whole)
	}
	return json.Marshal((*written)(&whole))
}

// types are the types that a value may have. One type is written without a list.
type types []string

// MarshalJSON writes types.
func (t types) MarshalJSON() ([]byte, error) {
	if len(t) == 1 {
		return json.Marshal(t[0])
	}
	return json.Marshal([]string(t))
}

// properties are the keys of a mapping, in their order.
type properties []property

type property struct {
	name   string
	schema *schema
}

// MarshalJSON writes properties as an object.
func (ps properties) MarshalJSON() ([]byte, error) {
	text := []byte("{")
	for i, p := range ps {
		schema, err := json.Marshal(p.schema)
		if err != nil {
			return nil, err
		}
		if i > 0 {
			text = append(text, ',')
		}
		text = append(strconv.AppendQuote(text, p.name), ':')
		text = append(text, schema...)
	}
	return append(text, '}'), nil
}

// definitions are the parts of the schema that several others refer to, by name.
var definitions = map[string]*schema{}

// define names a part of the schema, and returns a reference to it.
func define(name string, s *schema) *schema {
	definitions[name] = s
	return &schema{Ref: "#/$defs/" + name}
}

// titled returns s with a title.
func (s *schema) titled(title string) *schema {
	t := *s
	t.Title = title
	return &t
}

// described returns s with a description.
func (s *schema) described(description string) *schema {
	t := *s
	t.Description = description
	return &t
}

// withExamples returns s with examples, which are JSON.
func (s *schema) withExamples(examples string) *schema {
	t := *s
	t.Examples = json.RawMessage("[" + examples + "]")
	return &t
}

// text returns the schema of a string that matches a pattern. With the pattern "", every string matches.
func text(pattern string) *schema { return &schema{Type: types{"string"}, Pattern: pattern} }

// bare returns the schema of a string that matches a pattern. YAML may take such a string for a number or a boolean when it is not in quotes.
func bare(pattern string) *schema {
	return &schema{Type: types{"string", "number", "boolean"}, Pattern: pattern}
}

// The patterns of numbers in quotes.
const (
	digits   = "^[0-9]+$"
	positive = "^[1-9][0-9]*$"
	numerals = "^[0-9]+(-[0-9]+)?$" // a number or a range
)

// whole returns the schema of an integer from least to most. nil means no bound.
func whole(least, most any) *schema {
	return &schema{Type: types{"integer"}, Minimum: least, Maximum: most}
}

// numeral returns the schema of an integer, with or without quotes. pattern matches the integer in quotes.
func numeral(least, most int, pattern string) *schema {
	return anyOf(whole(least, most), text(pattern))
}

// rangesTo returns the schema of a number or a range up to most. The value may also match one of the schemas in others.
func rangesTo(most int, others ...*schema) *schema {
	return anyOf(append([]*schema{whole(0, most), text(numerals)}, others...)...)
}

func anyOf(alternatives ...*schema) *schema { return &schema{AnyOf: alternatives} }

func enum(values ...any) *schema { return &schema{Enum: values} }

// enumOf returns the schema of the keys of m.
func enumOf[T any](m map[string]T) *schema {
	return &schema{complete: func(s *schema) { s.Enum = anyOfKeys(m) }}
}

// anyOfKeys returns the keys of m as values of an enumeration.
func anyOfKeys[T any](m map[string]T) (list []any) {
	for _, word := range sorted(m) {
		list = append(list, word)
	}
	return list
}

// listOf returns the schema of an item, or of a list of one or more.
func listOf(item *schema) *schema { return listUpTo(0, item) }

// listUpTo returns the schema of an item, or of a list of one to most items. With 0 for most, the length has no bound.
func listUpTo(most int, item *schema) *schema {
	return anyOf(item, &schema{Type: types{"array"}, MinItems: 1, MaxItems: most, Items: item})
}

// object returns the schema of a mapping with keys.
func object[T any](keys []key[T]) *schema {
	return &schema{Type: types{"object"}, AdditionalProperties: false, complete: func(s *schema) {
		for _, k := range keys {
			s.Properties = append(s.Properties, property{k.name, k.schema()})
			if k.must != "" {
				s.Required = append(s.Required, k.name)
			}
		}
	}}
}
