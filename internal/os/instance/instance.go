// SPDX-License-Identifier: Apache-2.0

// This file names the files and directories of an instance of Floodwall. A host may have several instances, each with a directory of the BPF file
// system. One of these directories is the standard one.

package instance

import (
	"path/filepath"
	"strings"
)

// Name returns the path of the instance's directory, with - in place of /. It returns "" for the standard instance.
func Name(bpffs, standard string) string {
	if bpffs = filepath.Clean(bpffs); bpffs == standard {
		return ""
	}
	return strings.ReplaceAll(strings.Trim(bpffs, "/"), "/", "-")
}

// With returns base, - and the instance's name. For the standard instance it returns only base.
func With(base, bpffs, standard string) string {
	if name := Name(bpffs, standard); name != "" {
		return base + "-" + name
	}
	return base
}
