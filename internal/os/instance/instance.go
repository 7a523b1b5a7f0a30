// This file names the files and directories of an instance of Floodwall. Several run on a host, each in a directory of the BPF file
// system; one of these directories is the standard one.

package instance

import (
	"path/filepath"
	"strings"
)

// Name is the path of the instance's directory with - in place of /, and "" for the standard instance.
func Name(bpffs, standard string) string {
	if bpffs = filepath.Clean(bpffs); bpffs == standard {
		return ""
	}
	return strings.ReplaceAll(strings.Trim(bpffs, "/"), "/", "-")
}

// With is the base followed by - and the instance's name, and just the base for the standard instance.
func With(base, bpffs, standard string) string {
	if name := Name(bpffs, standard); name != "" {
		return base + "-" + name
	}
	return base
}
