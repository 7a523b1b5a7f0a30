package yamltree

import (
	"encoding/json"
	"errors"

	"github.com/goccy/go-yaml"
)

// JSON is src as readers with a JSON schema see it, such as editors: with YAML's guess at types, but with colons as Read has them.
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
