// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/floodwall/floodwall/policy"
	"github.com/floodwall/floodwall/policy/edit"
	"github.com/floodwall/floodwall/policy/shorthand"
	"github.com/floodwall/floodwall/test/testutil"
)

// TestRandomLines adds random lines to the policies of the documents and of the parser's tests. The policy must still compile, and the line must find
// its entry alone. Its removal must give the same bytes.
func TestRandomLines(t *testing.T) {
	t.Parallel()
	r := testutil.Random(t)
	texts := map[string]string{}
	for _, name := range documents(t) {
		for _, f := range fences(t, name) {
			if f.lang == "yaml" {
				texts[f.at] = f.text
			}
		}
	}
	good, err := filepath.Glob(filepath.Join(top, "policy/testdata/good/*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range good {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		texts[file] = string(text)
	}
	maps.DeleteFunc(texts, func(file, text string) bool { return checks(file, text) != nil })
	names := slices.Sorted(maps.Keys(texts))
	if len(names) < 30 {
		t.Errorf("only %d policies compile", len(names))
	}
	for n := range testutil.Scaled(400, 10_000) {
		name := names[n%len(names)]
		randomLine(t, r, name, texts[name])
	}
}

func randomLine(t *testing.T, r *rand.Rand, name, text string) {
	t.Helper()
	p, err := policy.Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	verb := shorthand.Verbs[r.IntN(len(shorthand.Verbs))]
	port := fmt.Sprint(60000 + r.IntN(5000))
	line := pick("tcp/"+port, port+"/tcp", port, port+","+port+"0/tcp", port+":65535")
	line = strings.Replace(line, port+"0", "59999", 1)
	if r.IntN(2) == 0 {
		line = "from " + pick("203.0.113.7", "2001:db8:9::/48", "192.0.2.1-192.0.2.9", "2001:db8::") +
			" to " + pick("any", "192.0.2.1", "any") + " port " + port
		if strings.Contains(line, "2001") {
			line = strings.Replace(line, "to 192.0.2.1", "to any", 1)
		}
		line += pick("", " proto tcp", " name line")
	}
	request, err := shorthand.Parse(verb, strings.Fields(line))
	if err != nil {
		t.Errorf("%s %s: %v", verb, line, err)
		return
	}
	list, entry, err := request.Entry(p)
	if err != nil {
		t.Errorf("%s %s: %v", verb, line, err)
		return
	}
	got, err := edit.Insert([]byte(text), list, edit.Last, entry)
	if err != nil {
		t.Errorf("%s: %s %s: %v", name, verb, line, err)
		return
	}
	if err := checks(name, string(got)); err != nil {
		t.Errorf("%s: %s %s: %v\n%s", name, verb, line, err, cmp.Diff(text, string(got)))
		return
	}
	after, err := policy.Parse(name, got)
	if err != nil {
		t.Fatal(err)
	}
	found, err := request.Find(after)
	if err != nil || len(found) != 1 {
		t.Errorf("%s: %s %s finds %v, %v\n%s", name, verb, line, found, err, cmp.Diff(text, string(got)))
		return
	}
	if back, err := edit.Remove(got, found[0].List, found[0].Index); err != nil || string(back) != text {
		t.Errorf("%s: %s %s: %v\n%s", name, verb, line, err, cmp.Diff(text, string(back)))
	}
}

// TestEditsAtOnce runs commands that edit the same file at the same time. None may lose the edit of another one.
func TestEditsAtOnce(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), policyFile)
	writeFile(t, file, "devices: [eth0]\ndefault: drop\n")
	const edits = 12
	var all sync.WaitGroup
	for n := range edits {
		all.Go(func() {
			if out, err := exec.Command("floodwall", "allow", fmt.Sprintf("tcp/%d", 9000+n), "--no-apply", "--file", file).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	all.Wait()
	p, err := policy.Read(file)
	if err != nil || len(p.Services) != edits {
		t.Errorf("the policy has not %d services: %v, %+v", edits, err, p)
	}
}

// TestDeletePart deletes one port of several, and one address of several. The difference must show one line, and the rest of the file must stay.
func TestDeletePart(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), policyFile)
	const text = "devices: [eth0]\nrules:\n  - {name: bad, from: [198.51.100.7, 198.51.100.8], then: drop}   # seen\n" +
		"services:\n  - {name: web, port: [80, 8080]}\n  - {name: app, port: [tcp/81, tcp/8081]}\n  - {name: old, port: [tcp/82, tcp/8081]}\n"
	writeFile(t, file, text)
	for _, row := range []struct{ line, want string }{
		{"delete 198.51.100.7", "\n+  - {name: bad, from: [198.51.100.8], then: drop}   # seen\n"},
		{"delete tcp/8080", "\n+  - {name: web, port: [80, udp/8080]}\n"},
		{"delete allow udp/8080", "\n+  - {name: web, port: [80]}\n"},
		{"delete tcp/8081", "error: 2 entries of the policy have that: app, old\nfloodwall: hint: name one: floodwall delete tcp/8081 name app"},
		{"delete tcp/8081 name old", "\n+  - {name: old, port: [tcp/82]}\n"},
	} {
		out, _ := exec.Command("sh", "-c", "floodwall "+row.line+" --no-apply --file "+file).CombinedOutput()
		if !strings.Contains(string(out), row.want) {
			t.Errorf("%s:\n%s", row.line, out)
		}
	}
	want := "devices: [eth0]\nrules:\n  - {name: bad, from: [198.51.100.8], then: drop}   # seen\n" +
		"services:\n  - {name: web, port: [80]}\n  - {name: app, port: [tcp/81, tcp/8081]}\n  - {name: old, port: [tcp/82]}\n"
	if got, err := os.ReadFile(file); err != nil || string(got) != want {
		t.Errorf("%v\n%s", err, cmp.Diff(want, string(got)))
	}
}
