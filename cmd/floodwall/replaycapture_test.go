// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/floodwall/floodwall/cmd/internal/cli"
	"github.com/floodwall/floodwall/internal/daemon/sample"
	"github.com/floodwall/floodwall/test/suggesttest"
)

// TestReplayOfOneDirection replays captures that contain no packets from the host, or none to the host. The answer must name the missing direction.
// It must not say that there was no attack.
func TestReplayOfOneDirection(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ line, want string }{
		{"udp 198.51.100.%d:123 > 192.0.2.1:4000 len=468", "nothing that left 192.0.2.1 is in the capture"},
		{"udp 192.0.2.1:4000 > 198.51.100.%d:123 len=48", "nothing that arrived at 192.0.2.1 is in the capture"},
	} {
		file := filepath.Join(t.TempDir(), "half.pcapng")
		out, err := os.Create(file)
		if err != nil {
			t.Fatal(err)
		}
		w, err := sample.NewFileWriter(out, 256, "fw0")
		for i := 0; err == nil && i < 2000; i++ {
			frame := suggesttest.Frame(fmt.Sprintf(tt.line, 1+i%200))
			err = w.Write(sample.Sample{Time: time.Unix(1_700_000_000, int64(i)*1e6), Device: "fw0", Length: len(frame), Frame: frame}, "")
		}
		if err != nil {
			t.Fatal(err)
		}
		out.Close()
		var said, errs bytes.Buffer
		root := newRoot(&cli.Env{Getenv: os.Getenv, UI: cli.UI{Stdout: &said, Stderr: &errs}})
		root.SetArgs([]string{"replay", file})
		if err := root.Execute(); err != nil || !strings.Contains(said.String(), tt.want) || strings.Contains(said.String(), "no attack would") {
			t.Errorf("%v %s\n%s\nwant %s", err, &errs, &said, tt.want)
		}
	}
}
