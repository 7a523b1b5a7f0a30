package main

import (
	"strings"
	"testing"
)

// TestReport has a stream with a test that passes, one with another in it, one that fails and one whose package ends before it does.
func TestReport(t *testing.T) {
	const stream = `noise
{"Action":"output","Package":"m/a","Test":"TestFine","Output":"all is well\n"}
{"Action":"pass","Package":"m/a","Test":"TestFine","Elapsed":3}
{"Action":"pass","Package":"m/a","Test":"TestMany/one","Elapsed":4}
{"Action":"pass","Package":"m/a","Test":"TestMany","Elapsed":0.1}
{"Action":"output","Package":"m/a","Output":"ok  \tm/a\t3.1s\n"}
{"Action":"pass","Package":"m/a","Elapsed":3.1}
{"Action":"output","Package":"m/b","Test":"TestBad","Output":"wrong\n"}
{"Action":"fail","Package":"m/b","Test":"TestBad","Elapsed":7}
{"Action":"output","Package":"m/b","Test":"TestCut","Output":"panic: no more\n"}
{"Action":"output","Package":"m/b","Output":"FAIL\tm/b\t8.0s\n"}
{"Action":"fail","Package":"m/b","Elapsed":8}
`
	for _, tt := range []struct{ stream, want string }{
		{stream, "noise\nok  \tm/a\t3.1s\nwrong\nFAIL\tm/b\t8.0s\npanic: no more\n\nThe slowest tests:\n" +
			"     7.0 s  b TestBad\n     4.0 s  a TestMany/one\n     3.0 s  a TestFine\n\nok  \tm/a\t3.1s\nFAIL\tm/b\t8.0s\nFAIL\n"},
		{stream[:strings.Index(stream, `{"Action":"output","Package":"m/b"`)],
			"noise\nok  \tm/a\t3.1s\n\nThe slowest tests:\n     4.0 s  a TestMany/one\n     3.0 s  a TestFine\n\nok  \tm/a\t3.1s\n"},
	} {
		var out strings.Builder
		r := &report{out: &out, output: map[string][]string{}}
		if err := r.read(strings.NewReader(tt.stream)); err != nil {
			t.Fatal(err)
		}
		if r.finish(); out.String() != tt.want {
			t.Errorf("got\n%s\nwant\n%s", out.String(), tt.want)
		}
		if r.failed != strings.HasSuffix(tt.want, "FAIL\n") {
			t.Errorf("failed: %v", r.failed)
		}
	}
}
