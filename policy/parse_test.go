// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/policy"
)

var update = flag.Bool("update", false, "rewrite the expectations under testdata")

func files(t testing.TB, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("testdata", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	return names
}

func read(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t testing.TB, file string, b []byte) {
	t.Helper()
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestGood compares the dump of each policy under testdata/good with the file of the same name that ends in .golden.
func TestGood(t *testing.T) {
	for _, file := range files(t, "good/*.yaml") {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			p, err := policy.Read(file)
			if err != nil {
				t.Fatal(err)
			}
			got, golden := dump(p), strings.TrimSuffix(file, ".yaml")+".golden"
			if *update {
				write(t, golden, []byte(got))
			}
			if diff := cmp.Diff(string(read(t, golden)), got); diff != "" {
				t.Errorf("policy differs from %s (-want +got):\n%s", golden, diff)
			}
		})
	}
}

// TestBad parses each policy under testdata/bad. The comments at the start of each file are the expected messages of Parse.
func TestBad(t *testing.T) {
	names := files(t, "bad/*.yaml")
	if len(names) < 60 {
		t.Errorf("%d bad policies, want at least 60", len(names))
	}
	for _, file := range names {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			want, body := splitHeader(read(t, file))
			if *update {
				want = rewrite(t, file, body)
			}
			if diff := cmp.Diff(want, messages(t, append(header(want), body...))); diff != "" {
				t.Errorf("messages differ (-want +got):\n%s", diff)
			}
		})
	}
}

// splitHeader splits src into the comments at its start, which are the messages, one a line, and the rest.
func splitHeader(src []byte) (messages string, body []byte) {
	for {
		line, rest, found := bytes.Cut(src, []byte("\n"))
		text, isComment := strings.CutPrefix(string(line), "# ")
		if !found || !isComment {
			return strings.TrimSuffix(messages, "\n"), src
		}
		messages, src = messages+text+"\n", rest
	}
}

func header(messages string) []byte {
	return []byte("# " + strings.ReplaceAll(messages, "\n", "\n# ") + "\n")
}

// rewrite writes the messages, followed by body, to file. The messages contain line numbers. These depend on the number of messages, so rewrite
// repeats until both agree.
func rewrite(t *testing.T, file string, body []byte) string {
	before := ""
	for range 3 {
		now := messages(t, append(header(before), body...))
		if strings.Count(now, "\n") == strings.Count(before, "\n") {
			write(t, file, append(header(now), body...))
			return now
		}
		before = now
	}
	t.Fatal("the messages change with the number of lines before the policy")
	return ""
}

func messages(t *testing.T, src []byte) string {
	p, err := policy.Parse("policy.yaml", src)
	if err == nil {
		t.Fatalf("no mistake found in\n%s\nwhich is\n%s", src, dump(p))
	}
	return err.Error()
}

func TestErrorsAreTyped(t *testing.T) {
	_, err := policy.Parse("p.yaml", []byte("devices: [eth0]\ndefault: deny\nchecks: x\n"))
	var all policy.Errors
	if !errors.As(err, &all) || len(all) != 2 {
		t.Fatalf("errors are %T %v, want two policy.Errors", err, err)
	}
	var one *policy.Error
	if !errors.As(err, &one) {
		t.Fatal("no *policy.Error in it")
	}
	want := policy.Error{File: "p.yaml", Line: 2, Col: 10, Msg: `default must be drop or pass, got "deny"`,
		Hint: `did you mean "drop"?`}
	if diff := cmp.Diff(want, *one); diff != "" {
		t.Errorf("first error (-want +got):\n%s", diff)
	}
}

func TestReadNamesTheFile(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "none.yaml")
	_, err := policy.Read(missing)
	if !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), missing) {
		t.Errorf("error is %v, want not-exist with the file's name", err)
	}
}

// TestColumnsCountCharacters checks that columns count characters, as editors do, and neither bytes nor carriage returns.
func TestColumnsCountCharacters(t *testing.T) {
	for _, src := range []string{
		"devices: [eth0] # x\n# é\nchecks: {\"land\": on, 'é': off, x: on}\n",
		"devices: [eth0] # x\r\n# é\r\nchecks: {\"land\": on, 'é': off, x: on}\r\n",
		"\ufeffdevices: [eth0]\r\r\nchecks: {\"land\": on, 'é': off, x: on}",
	} {
		_, err := policy.Parse("p", []byte(src))
		var all policy.Errors
		if !errors.As(err, &all) || len(all) != 2 {
			t.Errorf("%q: errors are %v, want two", src, err)
			continue
		}
		for i, col := range []int{22, 32} {
			if e := all[i]; e.Line != 3 || e.Col != col {
				t.Errorf("%q: mistake at %d:%d, want 3:%d", src, e.Line, e.Col, col)
			}
		}
	}
}
