// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/test/testutil"
)

func TestHelp(t *testing.T) { testutil.CheckHelp(t, newRoot(&cli.Env{})) }
