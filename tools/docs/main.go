// SPDX-License-Identifier: Apache-2.0

// Docs writes the generated documents:
//
//	docs reference SCHEMA PAGE MANUAL   the JSON schema of policies, the reference of their language, and the manual page floodwall-policy(5)
//	docs openapi FILE            the OpenAPI document of the API
//	docs readme [RUN]            chart and table of the README; the results of a run of the bench are stored first
package main

import (
	"errors"
	"fmt"
	"os"
)

//go:generate go run . reference ../../policy/schema.json ../../docs/policy.md ../../docs/floodwall-policy.5
//go:generate go run . openapi ../../docs/openapi.json

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "docs: error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 4 && args[0] == "reference":
		return writeReference(args[1], args[2], args[3])
	case len(args) == 2 && args[0] == "openapi":
		return writeOpenAPI(args[1])
	case len(args) > 0 && args[0] == "readme":
		return writeReadme(".", args[1:])
	}
	return errors.New("usage: docs reference SCHEMA PAGE MANUAL | docs openapi FILE | docs readme [RUN]")
}
