// Openapi writes the OpenAPI document of the API to a file.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	"github.com/floodwall/floodwall/internal/daemon/api"
)

func main() {
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(file string) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(api.Document()); err != nil {
		return err
	}
	return os.WriteFile(file, text.Bytes(), 0o644)
}
