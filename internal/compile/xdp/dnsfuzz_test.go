// SPDX-License-Identifier: Apache-2.0

package xdp_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/internal/model/ir"
	"github.com/floodwall/floodwall/test/subject"
	"github.com/floodwall/floodwall/test/testutil"
)

// FuzzConditions compares the loaded program with Eval on frames that the fuzzer finds. The rules test DNS messages and payload. The seeds include
// the corpus of packet.Decode.
func FuzzConditions(f *testing.F) {
	for _, p := range append(dnsEdges(f), subject.Shapes(f)...) {
		f.Add(p.Frame)
	}
	for _, frame := range foundFrames(f, "../../model/packet/testdata/fuzz/FuzzDecode/*") {
		f.Add(frame)
	}
	program := dnsProgram()
	program.Rules = append(program.Rules,
		asks("places", ir.PayloadMatch{At: []ir.At{{Base: ir.BaseL4, Offset: 2, Value: []byte{0, 80}, Mask: []byte{255, 255}}}}),
		asks("patterns", ir.PayloadMatch{Any: []ir.Pattern{anyCase("get ", 100), text("\x00\x01", 1024), text("a", 8)}}))
	s := programmed(program)
	forms := s.Forms(f)
	testutil.RequireRoot(f)
	var loaded []subject.Asker
	for _, x := range forms {
		loaded = append(loaded, s.Load(f, x))
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < 14 || len(frame) > 60_000 { // the lengths that the kernel accepts
			return
		}
		for i, p := range loaded {
			s.Compare(t, p, string(forms[i].Form), []subject.Probe{{Name: "fuzzed", Frame: frame}})
		}
	})
}

// foundFrames reads the files of a fuzz corpus: a line with the version, and a line with the bytes as a Go literal.
func foundFrames(t testing.TB, pattern string) (frames [][]byte) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, value, _ := strings.Cut(string(content), "\n")
		quoted := strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(value), "[]byte("), ")")
		frame, err := strconv.Unquote(quoted)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		frames = append(frames, []byte(frame))
	}
	return frames
}
