// SPDX-License-Identifier: Apache-2.0

// This file writes a software bill of materials in the format CycloneDX 1.6 as JSON (https://cyclonedx.org/docs/1.6/json/). The bill lists the
// modules from which a Go program was built. Its input is the build information that the Go command wrote into the program. The same program always
// results in the same bytes.

package cli

import (
	"fmt"
	"io"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// billLicence is the licence of the program. The build information does not contain the licences of the dependencies.
const billLicence = "Apache-2.0"

// writeBill writes the bill of materials of a program. The caller passes the program's version, because the Go command does not know it.
func writeBill(w io.Writer, info *debug.BuildInfo, version string) error {
	bom := cdx.NewBOM()
	bom.SerialNumber = "" // a random one would make each bill differ
	program := billModule(cdx.ComponentTypeApplication, info.Main.Path, version, "")
	program.Licenses = &cdx.Licenses{{License: &cdx.License{ID: billLicence}}}
	bom.Metadata = &cdx.Metadata{Component: &program}

	components := []cdx.Component{billModule(cdx.ComponentTypeLibrary, "std", strings.TrimPrefix(info.GoVersion, "go"), "")}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		components = append(components, billModule(cdx.ComponentTypeLibrary, m.Path, m.Version, m.Sum))
	}
	uses := cdx.Dependency{Ref: program.BOMRef}
	refs := make([]string, len(components))
	for i, c := range components {
		refs[i] = c.BOMRef
	}
	uses.Dependencies = &refs
	bom.Components, bom.Dependencies = &components, &[]cdx.Dependency{uses}

	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON).SetPretty(true)
	if err := encoder.EncodeVersion(bom, cdx.SpecVersion1_6); err != nil {
		return fmt.Errorf("bill of materials: %w", err)
	}
	return nil
}

// billModule describes a Go module. The checksum from go.sum becomes a property, because the field for hashes is for the hash of a file. The checksum
// is the hash of a list of hashes.
func billModule(kind cdx.ComponentType, path, version, sum string) cdx.Component {
	url := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B") // github.com/package-url/purl-spec
	c := cdx.Component{BOMRef: url, Type: kind, Name: path, Version: version, PackageURL: url}
	if sum != "" {
		c.Properties = &[]cdx.Property{{Name: "floodwall:go.sum", Value: sum}}
	}
	return c
}
