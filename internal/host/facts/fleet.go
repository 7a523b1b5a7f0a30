// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
)

// KeepFleet stores the addresses of the hubs and nodes of an instance's fleet in a file. Other programs read it to find the addresses that this host
// needs. An empty list removes the file.
func KeepFleet(instance string, list []netip.Addr) error {
	path := strings.Replace(System.Fleets, "*", "-"+instance, 1)
	if len(list) == 0 {
		os.Remove(path)
		return nil
	}
	var text strings.Builder
	for _, a := range list {
		fmt.Fprintln(&text, a)
	}
	next := path + ".new"
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(next, []byte(text.String()), 0o644)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		return fmt.Errorf("addresses of the fleet: %w", err)
	}
	return nil
}
