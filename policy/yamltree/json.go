// SPDX-License-Identifier: Apache-2.0

package yamltree

import (
	"encoding/json"
	"errors"

	"github.com/goccy/go-yaml"
)

// JSON converts the YAML in src to JSON for tools with a JSON schema, such as editors. It uses YAML's implicit types, but treats colons as Read does.
func JSON(src []byte) ([]byte, error) {
	var r report
	text, ok := clean(&r, src)
	if !ok {
		return nil, errors.New(r.mistakes[0].Msg)
	}
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	return []byte(colons(string(b))), err
}
