// SPDX-License-Identifier: Apache-2.0

// This file reads properties of devices from their drivers (include/uapi/linux/ethtool.h). It changes nothing. The devices are those in the network
// namespace of the thread that called Open.

package features

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Conn is a socket for ethtool requests.
type Conn struct{ fd int }

// Open opens a Conn. It needs no rights.
func Open() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for ethtool: %w", err)
	}
	return &Conn{fd}, nil
}

// Close closes the socket.
func (c *Conn) Close() { unix.Close(c.fd) }

// ifreq is struct ifreq (linux/if.h) with a pointer as its data.
type ifreq struct {
	name [unix.IFNAMSIZ]byte
	data unsafe.Pointer
	_    [16]byte
}

// ask sends one request. buf has the request and receives the answer. ask returns the kernel's errno unchanged. The errno is EOPNOTSUPP when the
// driver does not support the request.
func (c *Conn) ask(device string, buf []byte) error {
	if len(device) >= unix.IFNAMSIZ {
		return unix.ENODEV
	}
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&buf[0])
	req := ifreq{data: unsafe.Pointer(&buf[0])}
	copy(req.name[:], device)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(c.fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req)))
	if errno != 0 {
		return errno
	}
	return nil
}

// words sends a command. It returns the first n 32-bit words that follow the command in the answer.
func (c *Conn) words(device string, command uint32, n int) ([]uint32, error) {
	buf := request(4*n, command)
	if err := c.ask(device, buf); err != nil {
		return nil, err
	}
	words := make([]uint32, n)
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(buf[4+4*i:])
	}
	return words, nil
}

// request returns a buffer that starts with 32-bit words, followed by space for the answer.
func request(answer int, words ...uint32) []byte {
	var buf []byte
	for _, w := range words {
		buf = binary.NativeEndian.AppendUint32(buf, w)
	}
	return append(buf, make([]byte, answer)...)
}

// Driver returns the name of the device's driver (struct ethtool_drvinfo).
func (c *Conn) Driver(device string) (string, error) {
	const size = int(unsafe.Sizeof(unix.EthtoolDrvinfo{}))
	buf := request(size-4, unix.ETHTOOL_GDRVINFO)
	if err := c.ask(device, buf); err != nil {
		return "", fmt.Errorf("driver of device %s: %w", device, err)
	}
	return text(buf[4:36]), nil
}

// Channels are the numbers of a device's queues (struct ethtool_channels). Each queue has its own interrupt.
type Channels struct {
	MaxRX, MaxTX, MaxCombined uint32 // maximum numbers
	RX, TX, Combined          uint32 // present numbers
}

// Channels returns the numbers of the device's queues.
func (c *Conn) Channels(device string) (Channels, error) {
	w, err := c.words(device, unix.ETHTOOL_GCHANNELS, 8)
	if err != nil {
		return Channels{}, fmt.Errorf("queues of device %s: %w", device, err)
	}
	return Channels{MaxRX: w[0], MaxTX: w[1], MaxCombined: w[3], RX: w[4], TX: w[5], Combined: w[7]}, nil
}

// Rings are the sizes of a device's receive rings, in frames (struct ethtool_ringparam).
type Rings struct{ Max, Size uint32 }

// Rings returns the size of the device's receive rings.
func (c *Conn) Rings(device string) (Rings, error) {
	w, err := c.words(device, unix.ETHTOOL_GRINGPARAM, 8)
	if err != nil {
		return Rings{}, fmt.Errorf("rings of device %s: %w", device, err)
	}
	return Rings{Max: w[0], Size: w[4]}, nil
}

// Feature is an offload, or another property of a device that can be switched on or off.
type Feature struct {
	On    bool
	Fixed bool // it cannot be changed
}

// Features returns the device's features, by the kernel's names (net/ethtool/common.c).
func (c *Conn) Features(device string) (map[string]Feature, error) {
	names, err := c.strings(device, setFeatures)
	if err != nil {
		return nil, fmt.Errorf("features of device %s: %w", device, err)
	}
	blocks := (len(names) + 31) / 32
	const block = 16 // struct ethtool_get_features_block: available, requested, active, never_changed
	buf := request(blocks*block, unix.ETHTOOL_GFEATURES, uint32(blocks))
	if err := c.ask(device, buf); err != nil {
		return nil, fmt.Errorf("features of device %s: %w", device, err)
	}
	features := make(map[string]Feature, len(names))
	for i, name := range names {
		words := buf[8+i/32*block:]
		bit := func(word int) bool { return binary.NativeEndian.Uint32(words[4*word:])>>(i%32)&1 == 1 }
		features[name] = Feature{On: bit(2), Fixed: !bit(0) || bit(3)}
	}
	return features, nil
}

// Stats returns all counters of the device's driver (ethtool -S), by the driver's names.
func (c *Conn) Stats(device string) (map[string]uint64, error) {
	names, err := c.strings(device, setStats)
	if err != nil {
		return nil, fmt.Errorf("statistics of device %s: %w", device, err)
	}
	values := request(len(names)*8, unix.ETHTOOL_GSTATS, uint32(len(names)))
	if err := c.ask(device, values); err != nil {
		return nil, fmt.Errorf("statistics of device %s: %w", device, err)
	}
	stats := make(map[string]uint64, len(names))
	for i, name := range names {
		stats[name] = binary.NativeEndian.Uint64(values[8+8*i:])
	}
	return stats, nil
}

// Sets of strings, enum ethtool_stringset.
const (
	setStats    = 1
	setFeatures = 4
)

const stringSize = 32 // ETH_GSTRING_LEN

// strings returns the names in one of the device's string sets.
func (c *Conn) strings(device string, set uint32) ([]string, error) {
	info := request(4, unix.ETHTOOL_GSSET_INFO, 0)
	info = append(info[:8], request(4, 1<<set, 0)...) // struct ethtool_sset_info
	if err := c.ask(device, info); err != nil {
		return nil, err
	}
	if binary.NativeEndian.Uint64(info[8:]) == 0 {
		return nil, unix.EOPNOTSUPP
	}
	n := int(binary.NativeEndian.Uint32(info[16:]))
	buf := request(n*stringSize, unix.ETHTOOL_GSTRINGS, set, uint32(n))
	if err := c.ask(device, buf); err != nil {
		return nil, err
	}
	names := make([]string, n)
	for i := range names {
		names[i] = text(buf[12+i*stringSize:][:stringSize])
	}
	return names, nil
}

func text(field []byte) string {
	before, _, _ := bytes.Cut(field, []byte{0})
	return string(before)
}
