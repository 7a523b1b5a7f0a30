// Package machines has the tests that need a machine: boot with systemd and power cuts, and drivers of network cards.
package machines
