// SPDX-License-Identifier: Apache-2.0

package policies

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nkeys"
)

const plain = `devices: [eth0]
default: pass
sets:
  bad: {file: lists/bad.txt}
rules:
  - {name: bad, from: $bad, then: drop}
`

func newKey(t testing.TB) (nkeys.KeyPair, string) {
	t.Helper()
	key, err := nkeys.CreateAccount()
	if err != nil {
		t.Fatal(err)
	}
	public, _ := key.PublicKey()
	return key, public
}

func writeDir(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func manifestOf(t testing.TB, dir string) (*Manifest, map[string][]byte) {
	t.Helper()
	files, content, err := ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return &Manifest{Version: 7, Stage: All, Confirm: 60, Made: time.Unix(1, 0).UTC(), Files: files}, content
}

// TestOrder changes every byte of an order, truncates the order at every byte, and signs it with another key. Open must accept only the complete
// order with the key's signature.
func TestOrder(t *testing.T) {
	t.Parallel()
	key, public := newKey(t)
	other, otherPublic := newKey(t)
	m, _ := manifestOf(t, writeDir(t, map[string]string{Policy: plain, "lists/bad.txt": "198.51.100.7\n"}))
	order, err := Sign(m, key)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := Open(order, public); err != nil || got.Version != 7 || got.Content() != m.Content() || !got.For("any") {
		t.Fatalf("the order: %+v %v", got, err)
	}
	for at := range order {
		bad := bytes.Clone(order)
		bad[at] ^= 1
		if _, err := Open(bad, public); !errors.Is(err, ErrNotSigned) {
			t.Fatalf("byte %d is changed: %v", at, err)
		}
		if _, err := Open(order[:at], public); err == nil {
			t.Fatalf("it is cut at byte %d, and opened", at)
		}
	}
	forged, _ := Sign(m, other)
	if _, err := Open(forged, public); !errors.Is(err, ErrNotSigned) {
		t.Errorf("another key: %v", err)
	}
	if _, err := Open(append(forged[:sigSize:sigSize], order[sigSize:]...), otherPublic); err != nil && !errors.Is(err, ErrNotSigned) {
		t.Errorf("the signature of another: %v", err)
	}
	if _, err := Open(append(order, '\n', '{', '}'), public); err == nil {
		t.Error("something after the order is taken")
	}
	if _, err := Open(make([]byte, MaxOrder+1), public); err == nil {
		t.Error("a huge order is read")
	}
}

// TestManifest uses signed but invalid manifests: with paths outside, duplicate files, too large, too many, without a policy.
func TestManifest(t *testing.T) {
	t.Parallel()
	key, public := newKey(t)
	sum := Sum(nil)
	policy := File{Policy, 0, sum}
	many := []File{}
	for i := range MaxFiles {
		many = append(many, File{"a" + strings.Repeat("b", i), 0, sum})
	}
	for name, change := range map[string]func(*Manifest){
		"leads out":    func(m *Manifest) { m.Files = []File{{"../x", 0, sum}, policy} },
		"absolute":     func(m *Manifest) { m.Files = []File{{"/etc/shadow", 0, sum}, policy} },
		"hidden":       func(m *Manifest) { m.Files = []File{{"a/.b", 0, sum}, policy} },
		"empty name":   func(m *Manifest) { m.Files = []File{{"", 0, sum}, policy} },
		"no end":       func(m *Manifest) { m.Files = []File{{"a\n", 0, sum}, policy} },
		"deep":         func(m *Manifest) { m.Files = []File{{"a/b/c/d/e", 0, sum}, policy} },
		"twice":        func(m *Manifest) { m.Files = []File{policy, policy} },
		"file and dir": func(m *Manifest) { m.Files = []File{{"a", 0, sum}, {"a/b", 0, sum}, policy} },
		"no order":     func(m *Manifest) { m.Files = []File{policy, {"a", 0, sum}} },
		"huge file":    func(m *Manifest) { m.Files = []File{{"a", MaxFile + 1, sum}, policy} },
		"huge":         func(m *Manifest) { m.Files = []File{{"a", MaxFile, sum}, {"b", MaxFile, sum}, {"c", 1, sum}, policy} },
		"negative":     func(m *Manifest) { m.Files = []File{{"a", -1, sum}, policy} },
		"many":         func(m *Manifest) { m.Files = append(many, policy) },
		"no sum":       func(m *Manifest) { m.Files = []File{{Policy, 0, "x"}} },
		"no policy":    func(m *Manifest) { m.Files = nil },
		"no version":   func(m *Manifest) { m.Version = 0 },
		"no stage":     func(m *Manifest) { m.Stage = "x" },
		"no canary":    func(m *Manifest) { m.Stage = Canary },
		"no trial":     func(m *Manifest) { m.Confirm = 0 },
		"long trial":   func(m *Manifest) { m.Confirm = 1 << 40 },
	} {
		m := &Manifest{Version: 1, Stage: All, Confirm: 60, Files: []File{policy}}
		change(m)
		if _, err := Sign(m, key); err == nil {
			t.Errorf("%s: it is signed", name)
		}
		text, _ := json.Marshal(m)
		sig, _ := key.Sign(append([]byte(begin), text...))
		if _, err := Open(append(sig, text...), public); err == nil || errors.Is(err, ErrNotSigned) {
			t.Errorf("%s: %v", name, err)
		}
	}
	text := []byte(`{"version":1,"stage":"all","confirm":60,"run":"x","files":[]}`)
	sig, _ := key.Sign(append([]byte(begin), text...))
	if _, err := Open(append(sig, text...), public); err == nil || !strings.Contains(err.Error(), "unknown field") {
		t.Errorf("a key that nobody knows: %v", err)
	}
}

// TestReadDir uses directories that are no bundle. Each error must name the file.
func TestReadDir(t *testing.T) {
	t.Parallel()
	with := func(add string) string { return strings.Replace(plain, "rules:\n", add+"rules:\n", 1) }
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no policy":         {map[string]string{"a.yaml": plain}, "has no policy.yaml"},
		"a file of no rule": {map[string]string{Policy: plain, "lists/bad.txt": "", "id_rsa": "secret"}, "does not name id_rsa"},
		"no list":           {map[string]string{Policy: plain}, "lists/bad.txt, which is not in the bundle"},
		"a file of the host": {map[string]string{Policy: with("  all: {file: /etc/shadow}\n"), "lists/bad.txt": ""},
			"/etc/shadow, which is not in the bundle"},
		"a way out": {map[string]string{Policy: with("  all: {file: lists/../../x}\n"), "lists/bad.txt": ""}, "which is not in the bundle"},
		"a password": {map[string]string{Policy: with("  all: {url: 'https://u:p@example.com/l'}\n"), "lists/bad.txt": ""},
			"must not have a password"},
		"a key of the host": {map[string]string{Policy: "daemon: {webhook: {url: https://example.com/, secret_file: /etc/shadow}}\n" + plain, "lists/bad.txt": ""},
			"must not name /etc/shadow"},
		"a key of a router": {map[string]string{Policy: "upstream: {as: 64500, router_id: 192.0.2.1, announce: [192.0.2.0/24], peers: [{address: 192.0.2.2, as: 64501, password_file: /etc/shadow}]}\n" + plain,
			"lists/bad.txt": ""}, "must not name /etc/shadow"},
		"a way to a key": {map[string]string{Policy: "daemon: {webhook: {url: https://example.com/, secret_file: /etc/floodwall/../shadow}}\n" + plain, "lists/bad.txt": ""},
			"must not name"},
		"no YAML": {map[string]string{Policy: "{"}, ""},
	} {
		_, _, err := ReadDir(writeDir(t, test.files))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	dir := writeDir(t, map[string]string{Policy: plain})
	if err := os.Symlink("/etc", filepath.Join(dir, "lists")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadDir(dir); err == nil {
		t.Error("a link to a directory is followed")
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, "lists")), os.Mkdir(filepath.Join(dir, "lists"), 0o755), os.Symlink("/etc/passwd", filepath.Join(dir, "lists/bad.txt"))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := ReadDir(dir); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a link to a file: %v", err)
	}
	key := writeDir(t, map[string]string{Policy: "daemon: {webhook: {url: https://example.com/, secret_file: /etc/floodwall/hook.key}}\n" + plain, "lists/bad.txt": ""})
	if _, _, err := ReadDir(key); err != nil {
		t.Errorf("a secret of the node in its place: %v", err)
	}
}

// TestWrite uses a hub that serves wrong bytes, fewer bytes, more bytes, and no bytes. No file of the bundle may remain.
func TestWrite(t *testing.T) {
	t.Parallel()
	m, content := manifestOf(t, writeDir(t, map[string]string{Policy: plain, "lists/bad.txt": "198.51.100.7\n"}))
	top := t.TempDir()
	for name, get := range map[string]func(File) ([]byte, error){
		"other":   func(f File) ([]byte, error) { return bytes.Repeat([]byte("x"), int(f.Size)), nil },
		"fewer":   func(f File) ([]byte, error) { return content[f.Sum][1:], nil },
		"more":    func(f File) ([]byte, error) { return append(bytes.Clone(content[f.Sum]), 'x'), nil },
		"none":    func(File) ([]byte, error) { return nil, errors.New("none") },
		"swapped": func(File) ([]byte, error) { return content[m.Files[0].Sum], nil },
	} {
		if err := Write(filepath.Join(top, "7"), m, get); err == nil {
			t.Errorf("%s: it is taken", name)
		}
		if left, _ := os.ReadDir(top); len(left) > 0 {
			t.Fatalf("%s: %v is left", name, left)
		}
	}
	dir := filepath.Join(top, "7")
	if err := Write(dir, m, func(f File) ([]byte, error) { return content[f.Sum], nil }); err != nil {
		t.Fatal(err)
	}
	if got, err := ContentOf(dir); err != nil || got != m.Content() {
		t.Errorf("the content is %s, want %s: %v", got, m.Content(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "lists/bad.txt"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := ContentOf(dir); err != nil || got == m.Content() {
		t.Errorf("a file was changed, and the content is the same: %v", err)
	}
}

// FuzzOpen parses any bytes as an order, and as a signed manifest. An accepted manifest must keep the limits, and signing it must give the same
// order.
func FuzzOpen(f *testing.F) {
	key, public := newKey(f)
	m, _ := manifestOf(f, writeDir(f, map[string]string{Policy: plain, "lists/bad.txt": "198.51.100.7\n"}))
	order, _ := Sign(m, key)
	f.Add(order)
	f.Add(order[sigSize:])
	f.Add([]byte(`{"version":1,"stage":"canary","canary":["a"],"confirm":60,"files":[{"name":"../a"}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if m, err := Open(b, public); err == nil && !bytes.Equal(b, order) {
			t.Fatalf("forged: %+v", m)
		}
		m, err := parse(b)
		if err != nil {
			return
		}
		again, err := Sign(m, key)
		if err != nil {
			t.Fatalf("%+v cannot be signed: %v", m, err)
		}
		if o, err := Open(again, public); err != nil || o.Content() != m.Content() || o.Version != m.Version {
			t.Fatalf("signed again: %+v %v", o, err)
		}
		for _, f := range m.Files {
			if !filepath.IsLocal(f.Name) || strings.ContainsAny(f.Name, "\x00\n\\") {
				t.Fatalf("%q leads out", f.Name)
			}
		}
	})
}
