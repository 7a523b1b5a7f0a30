// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The licenses of Floodwall's own code (LICENSE and bpf/LICENSE).
const (
	licence  = "Apache-2.0"
	licenceC = "GPL-2.0-only OR BSD-2-Clause"
)

// headers are the Debian packages of the headers that the C in bpf/ includes. The commit has the compiled C, so this machine's version of the
// headers may differ. The provenance names the version with which the C was compiled again.
var headers = []struct{ name, licence string }{
	{"libbpf-dev", "LGPL-2.1-only OR BSD-2-Clause"},
	{"linux-libc-dev", "GPL-2.0-only WITH Linux-syscall-note"},
}

// bill is the bill of materials of a release while it is made: components, and the dependencies of each by their references.
type bill struct {
	components map[string]cdx.Component
	uses       map[string][]string
}

func (b *bill) add(c cdx.Component) {
	if _, there := b.components[c.BOMRef]; !there {
		b.components[c.BOMRef] = c
	}
}

func (b *bill) use(user, ref string) {
	if !slices.Contains(b.uses[user], ref) {
		b.uses[user] = append(b.uses[user], ref)
	}
}

// object is a compiled C program that the binaries contain, some of them compressed.
type object struct {
	ref     string
	content []byte
}

func writeBill(w io.Writer, version, tree, binaries, packages string) error {
	b := bill{map[string]cdx.Component{}, map[string][]string{}}
	root := cdx.Component{
		BOMRef: "pkg:golang/" + project + "@" + version, Type: cdx.ComponentTypeApplication, Name: "floodwall", Version: version,
		PackageURL: "pkg:golang/" + project + "@" + version, Licenses: &cdx.Licenses{{Expression: licence + " AND (" + licenceC + ")"}},
	}
	objects, err := b.addObjects(tree, version)
	if err != nil {
		return err
	}
	found, err := filepath.Glob(filepath.Join(binaries, "*", "*.cdx.json"))
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("%s has no bill of a program", binaries)
	}
	for _, file := range found {
		ref, err := b.addProgram(file, version, objects)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		b.use(root.BOMRef, ref)
	}
	if err := b.addPackages(packages); err != nil {
		return err
	}
	return b.write(w, root, tree)
}

// addObjects adds the compiled C programs of the commit, and the headers that they include.
func (b *bill) addObjects(tree, version string) (list []object, err error) {
	names, err := output(tree, "git", "ls-files", "*_bpfel.o", "*_bpfel.o.gz")
	if err != nil {
		return nil, err
	}
	for _, name := range strings.Fields(names) {
		content, err := os.ReadFile(filepath.Join(tree, name))
		if err != nil {
			return nil, err
		}
		o := object{"bpf:" + name, content}
		b.add(cdx.Component{
			BOMRef: o.ref, Type: cdx.ComponentTypeFile, Name: name, Version: version, Hashes: sum(content),
			Description: "BPF program, compiled from the C in bpf/", Licenses: &cdx.Licenses{{Expression: licenceC}},
		})
		for _, h := range headers {
			url := "pkg:deb/debian/" + h.name
			b.add(cdx.Component{
				BOMRef: url, Type: cdx.ComponentTypeLibrary, Name: h.name, PackageURL: url,
				Description: "headers that the C includes", Licenses: &cdx.Licenses{{Expression: h.licence}},
			})
			b.use(o.ref, url)
		}
		list = append(list, o)
	}
	return list, nil
}

// addProgram adds a program of an architecture and its components. The program prints its own bill.
func (b *bill) addProgram(file, version string, objects []object) (ref string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	var own cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(text), cdx.BOMFileFormatJSON).Decode(&own); err != nil {
		return "", err
	}
	if own.Components == nil {
		return "", fmt.Errorf("no components")
	}
	content, err := os.ReadFile(strings.TrimSuffix(file, ".cdx.json"))
	if err != nil {
		return "", err
	}
	name, arch := strings.TrimSuffix(filepath.Base(file), ".cdx.json"), filepath.Base(filepath.Dir(file))
	ref = "program:" + name + "/" + arch
	b.add(cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeApplication, Name: name, Version: version, Hashes: sum(content),
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: licence}}},
		Properties: &[]cdx.Property{{Name: "floodwall:architecture", Value: arch}},
	})
	for _, c := range *own.Components {
		b.add(c)
		b.use(ref, c.BOMRef)
	}
	for _, o := range objects {
		if bytes.Contains(content, o.content) {
			b.use(ref, o.ref)
		}
	}
	return ref, nil
}

// relations are the fields of a Debian package that name other packages. The value is whether the program runs without these.
var relations = []struct {
	field string
	scope cdx.Scope
}{{"Depends", cdx.ScopeRequired}, {"Recommends", cdx.ScopeOptional}, {"Suggests", cdx.ScopeOptional}}

// relation matches a package in such a field, for example floodwall (= 1.0-1).
var relation = regexp.MustCompile(`^([a-z0-9][a-z0-9+.-]+)(?: \((.*)\))?$`)

// addPackages adds the dependencies of the Debian packages. Each alternative is a component.
func (b *bill) addPackages(dir string) error {
	debs, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err != nil {
		return err
	}
	if len(debs) == 0 {
		return fmt.Errorf("%s has no .deb", dir)
	}
	for _, deb := range debs {
		name, err := output("", "dpkg-deb", "--field", deb, "Package")
		if err != nil {
			return err
		}
		arch, err := output("", "dpkg-deb", "--field", deb, "Architecture")
		if err != nil {
			return err
		}
		for _, r := range relations {
			value, err := output("", "dpkg-deb", "--field", deb, r.field)
			if err != nil {
				return err
			}
			for _, one := range strings.FieldsFunc(value, func(c rune) bool { return c == ',' || c == '|' }) {
				m := relation.FindStringSubmatch(strings.TrimSpace(one))
				if m == nil {
					return fmt.Errorf("%s: %s: %q is no package", deb, r.field, one)
				}
				if strings.HasPrefix(m[1], "floodwall") {
					continue // this package is part of the release
				}
				c := cdx.Component{
					BOMRef: "pkg:deb/debian/" + m[1], Type: cdx.ComponentTypeLibrary, Name: m[1], PackageURL: "pkg:deb/debian/" + m[1], Scope: r.scope,
					Description: "named by the package " + name + " in " + r.field,
				}
				if m[2] != "" {
					c.Properties = &[]cdx.Property{{Name: "floodwall:version", Value: m[2]}}
				}
				b.add(c)
				b.use("program:"+name+"/"+arch, c.BOMRef)
			}
		}
	}
	return nil
}

// write writes the bill in a fixed order.
func (b *bill) write(w io.Writer, root cdx.Component, tree string) error {
	at, err := output(tree, "git", "log", "-1", "--format=%cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ")
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = "" // a random number would make each bill differ
	bom.Metadata = &cdx.Metadata{Timestamp: at, Component: &root}
	components, dependencies := []cdx.Component{}, []cdx.Dependency{}
	for _, c := range b.components {
		components = append(components, c)
	}
	for ref, uses := range b.uses {
		slices.Sort(uses)
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &uses})
	}
	slices.SortFunc(components, func(x, y cdx.Component) int { return strings.Compare(x.BOMRef, y.BOMRef) })
	slices.SortFunc(dependencies, func(x, y cdx.Dependency) int { return strings.Compare(x.Ref, y.Ref) })
	bom.Components, bom.Dependencies = &components, &dependencies
	return cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true).EncodeVersion(bom, cdx.SpecVersion1_6)
}

// sum is the SHA-256 of a file's content.
func sum(content []byte) *[]cdx.Hash {
	h := sha256.Sum256(content)
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(h[:])}}
}
