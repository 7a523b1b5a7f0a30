// SPDX-License-Identifier: Apache-2.0

// Verifier updates .ci/verifier.json with the kernels' results from tests. It reads a JSON object a line from standard input, and replaces the known
// results.
//
//	verifier FILE <STATISTICS
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"

	"github.com/floodwall/floodwall/test/subject"
)

func main() {
	if err := renew(os.Args[1:], os.Stdin); err != nil {
		fmt.Fprintln(os.Stderr, "verifier: error:", err)
		os.Exit(1)
	}
}

func renew(args []string, from io.Reader) error {
	if len(args) != 1 {
		return errors.New("usage: verifier FILE <STATISTICS")
	}
	known, err := subject.ReadVerifierFile(args[0])
	if err != nil {
		return err
	}
	renewed := 0
	for lines := json.NewDecoder(from); ; renewed++ {
		var said subject.VerifierFile
		if err := lines.Decode(&said); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("what the tests have said: %w", err)
		}
		maps.Copy(known, said)
	}
	if renewed == 0 {
		return errors.New("the tests have said nothing: see whether they could load the programs")
	}
	return known.Write(args[0])
}
