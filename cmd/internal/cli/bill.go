// SPDX-License-Identifier: Apache-2.0

// This file writes a software bill of materials in the format CycloneDX 1.6 as JSON (https://cyclonedx.org/docs/1.6/json/). The bill lists the
// modules from which a Go program was built. Its input is the build information that the Go command wrote into the program. The same program always
// results in the same bytes.

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
)

// billLicence is the licence of the program. The build information does not contain the licences of the dependencies.
const billLicence = "Apache-2.0"

// bill has the fields of a bill of materials that this program fills.
type bill struct {
	Schema      string       `json:"$schema"`
	BOMFormat   string       `json:"bomFormat"`
	SpecVersion string       `json:"specVersion"`
	Version     int          `json:"version"`
	Metadata    billMetadata `json:"metadata"`
	Components  []billModule `json:"components"`
	Depends     []billEdge   `json:"dependencies"`
}

type billMetadata struct {
	Component billModule `json:"component"`
}

// billModule is a Go module.
type billModule struct {
	Ref        string         `json:"bom-ref"`
	Type       string         `json:"type"`
	Name       string         `json:"name"`
	Version    string         `json:"version"`
	Licenses   []billLicense  `json:"licenses,omitempty"`
	PURL       string         `json:"purl"` // https://github.com/package-url/purl-spec
	Properties []billProperty `json:"properties,omitempty"`
}

type billLicense struct {
	License struct {
		ID string `json:"id"`
	} `json:"license"`
}

type billProperty struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// billEdge lists the modules that a module needs, by their references.
type billEdge struct {
	Ref       string   `json:"ref"`
	DependsOn []string `json:"dependsOn"`
}

// writeBill writes the bill of materials of a program. The caller passes the program's version, because the Go command does not know it.
func writeBill(w io.Writer, info *debug.BuildInfo, version string) error {
	program := newBillModule("application", info.Main.Path, version, "")
	program.Licenses = make([]billLicense, 1)
	program.Licenses[0].License.ID = billLicence
	components := []billModule{newBillModule("library", "std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Version == "(devel)" { // of the same tree, as the program
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, newBillModule("library", m.Path, m.Version, m.Sum))
	}
	uses := billEdge{Ref: program.Ref}
	for _, c := range components {
		uses.DependsOn = append(uses.DependsOn, c.Ref)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(bill{
		Schema: "http://cyclonedx.org/schema/bom-1.6.schema.json", BOMFormat: "CycloneDX", SpecVersion: "1.6", Version: 1,
		Metadata: billMetadata{program}, Components: components, Depends: []billEdge{uses},
	})
	if err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	return nil
}

// newBillModule describes a Go module. The checksum from go.sum becomes a property, because the field for hashes is for the hash of a file. The checksum
// is the hash of a list of hashes.
func newBillModule(kind, path, version, sum string) billModule {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	m := billModule{Ref: url, Type: kind, Name: path, Version: version, PURL: url}
	if sum != "" {
		m.Properties = []billProperty{{Name: "floodwall:go.sum", Value: sum}}
	}
	return m
}
