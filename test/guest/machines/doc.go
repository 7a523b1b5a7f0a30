// Package machines boots Debian with systemd in QEMU, with Floodwall installed as `make install` does it, and a stream of packets
// that begins before the machine does. A socket is open from early in the boot, at a port that the policy closes.
package machines
