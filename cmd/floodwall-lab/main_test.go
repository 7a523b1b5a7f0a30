// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets this binary be the command floodwall-lab for scripts.
func TestMain(m *testing.M) { testscript.Main(m, map[string]func(){"floodwall-lab": main}) }

// TestScripts runs the sessions that need no rights.
func TestScripts(t *testing.T) { testscript.Run(t, testscript.Params{Dir: "testdata"}) }
