// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"

	"github.com/floodwall/floodwall/internal/daemon/api"
)

// writeOpenAPI writes the OpenAPI document of the API to a file.
func writeOpenAPI(file string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(api.Document()); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}
