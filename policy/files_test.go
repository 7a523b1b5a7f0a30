// SPDX-License-Identifier: Apache-2.0

package policy_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/floodwall/floodwall/policy"
)

// TestFiles checks that Files lists all files that a policy refers to. It recognizes fields with the name of a file by the names of the fields.
func TestFiles(t *testing.T) {
	var fields []string
	seen := map[reflect.Type]bool{}
	var visit func(of reflect.Type)
	visit = func(of reflect.Type) {
		for of.Kind() == reflect.Pointer || of.Kind() == reflect.Slice {
			of = of.Elem()
		}
		if of.Kind() != reflect.Struct || seen[of] || !strings.HasSuffix(of.PkgPath(), "/policy") {
			return
		}
		seen[of] = true
		for i := range of.NumField() {
			f := of.Field(i)
			if f.Type.Kind() == reflect.String && slices.Contains([]string{"File", "Secret", "DB", "Database", "Path", "Key"}, f.Name) {
				fields = append(fields, of.Name()+"."+f.Name)
			}
			visit(f.Type)
		}
	}
	visit(reflect.TypeFor[policy.Policy]())
	slices.Sort(fields)
	// Files leaves out two of the fields. Policy.File is the policy itself. TLS.Key is an absolute path, so the file is not copied.
	want := []string{"Geo.DB", "Guard.Secret", "NameSet.File", "Policy.File", "Set.File", "TLS.Key"}
	if !slices.Equal(fields, want) {
		t.Errorf("a policy has the files %v; Files lists those of %v", fields, want)
	}
	p, err := policy.Parse("p.yaml", []byte(`
devices: [eth0]
sets:
  a: {file: a.txt}
  g: {country: XX, db: g.mmdb}
  n: {names: {file: n.txt}}
services:
  - {name: dns, port: [udp/53, tcp/53], guard: {type: dns, secret: s.txt}}
`))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range p.Files() {
		names = append(names, *f.Name)
	}
	if !slices.Equal(names, []string{"a.txt", "g.mmdb", "n.txt", "s.txt"}) {
		t.Errorf("files %v", names)
	}
}

// TestBootDefault checks that BootClosed follows the default if a policy does not have the key boot.
func TestBootDefault(t *testing.T) {
	for text, want := range map[string]bool{
		"default: drop": true, "default: pass": false, "": false, "{default: drop, boot: open}": false, "boot: closed": true,
	} {
		text = strings.NewReplacer("{", "", "}", "", ", ", "\n").Replace(text)
		p, err := policy.Parse("p.yaml", []byte("devices: [eth0]\n"+text+"\n"))
		if err != nil || p.BootClosed != want {
			t.Errorf("%q: closed %v (%v), want %v", text, p.BootClosed, err, want)
		}
	}
}
