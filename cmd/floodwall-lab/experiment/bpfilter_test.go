// SPDX-License-Identifier: Apache-2.0

package experiment

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/cmd/floodwall-lab/rig"
	"github.com/floodwall/floodwall/internal/lab"
	"github.com/floodwall/floodwall/test/testutil"
)

// bpfilterScript replaces bpfilter's benchmark, which cannot be built here. It takes the same arguments and writes the same format.
const bpfilterScript = `#!/bin/sh
[ "$1 $3 $5 $7 $8" = "--cli --srcdir --outfile --filter ip4_saddr" ] && [ -x "$2" ] && [ -d "$4" ] || exit 7
cat >"$6" <<EOF
{"context": {"gitrev": "1234567"}, "benchmarks": [
 {"name": "single_rule__ip4_saddr", "run_type": "iteration", "real_time": 3.1e+01, "cpu_time": 9, "time_unit": "ns", "nInsn": 60},
 {"name": "multiple_rules__ip4_saddr/8", "real_time": 40, "time_unit": "ns"},
 {"name": "multiple_rules__ip4_saddr/32", "error_occurred": true, "error_message": "benchmark run failed", "real_time": 0, "time_unit": "ns"},
 {"name": "single_rule__ip4_saddr__x_elem_set/500000", "real_time": 50, "time_unit": "ns"},
 {"name": "chain_set__ip4_saddr__x_elem_set/8", "real_time": 2, "time_unit": "ms"}]}
EOF
`

// TestBpfilterItself runs the replacement like the real benchmark, and checks that its figures are read.
func TestBpfilterItself(t *testing.T) {
	testutil.RequireRoot(t)
	tree := t.TempDir()
	l, err := lab.New(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	host, err := l.Host("host")
	if err != nil {
		t.Fatal(err)
	}
	if figures, missing, err := bpfilterFigures(t.Context(), host, ""); figures != nil || missing != noBpfilter || err != nil {
		t.Errorf("without a tree: %v, %q, %v", figures, missing, err)
	}
	if _, _, err := bpfilterFigures(t.Context(), host, tree); err == nil || !strings.Contains(err.Error(), "no program benchmark_bin in "+tree) {
		t.Errorf("of a tree without it: %v", err)
	}
	for name, text := range map[string]string{"build/out/benchmark_bin": bpfilterScript, "build/out/bfcli": "#!/bin/sh\n"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(tree, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	figures, missing, err := bpfilterFigures(t.Context(), host, tree)
	want := map[string]float64{"rules=1": 31, "rules=8": 40, "set=500000": 50}
	if diff := cmp.Diff(want, figures); diff != "" || missing != "" || err != nil {
		t.Errorf("%q, %v, -want +got:\n%s", missing, err, diff)
	}
}

// TestBpfilterFrame compares the packet with that of bpfilter's benchmark: its length, protocol and addresses.
func TestBpfilterFrame(t *testing.T) {
	frame, err := rig.Frame(bpfilterKinds[0].line)
	if err != nil {
		t.Fatal(err)
	}
	if len(frame) != 42 || frame[23] != 1 || string(frame[26:34]) != "\x7f\x02\x0a\x0a\x7f\x02\x0a\x0b" {
		t.Errorf("%d bytes: %x", len(frame), frame)
	}
}
