// SPDX-License-Identifier: Apache-2.0

package sockets

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Programs returns the names of the programs that have sockets open. The keys are the sockets' inode numbers from /proc/PID/fd. Programs that this
// process may not inspect are missing.
func Programs() Owners {
	o := Owners{}
	each("[0-9]*", func(process string, inode uint32) {
		if name, err := os.ReadFile(filepath.Join(process, "comm")); err == nil {
			o[inode] = strings.TrimSpace(string(name))
		}
	})
	return o
}

// Inodes returns the inode numbers of the sockets that a process has open.
func Inodes(pid int) (list []uint32) {
	each(strconv.Itoa(pid), func(_ string, inode uint32) { list = append(list, inode) })
	return list
}

// HeldBy reports whether a process has the socket open.
func (s Socket) HeldBy(pid int) bool { return slices.Contains(Inodes(pid), s.inode) }

// each calls fn for each open socket of the processes whose PIDs match a glob pattern.
func each(pattern string, fn func(process string, inode uint32)) {
	files, _ := filepath.Glob("/proc/" + pattern + "/fd/*")
	for _, file := range files {
		target, err := os.Readlink(file)
		if err != nil || !strings.HasPrefix(target, "socket:[") {
			continue
		}
		inode, err := strconv.ParseUint(strings.Trim(target, "socket:[]"), 10, 32)
		if err == nil {
			fn(filepath.Dir(filepath.Dir(file)), uint32(inode))
		}
	}
}

// Owners maps the inode numbers of sockets to the names of the programs that have them open.
type Owners map[uint32]string

// Of returns the name of the program that has a socket open, "" if it is unknown.
func (o Owners) Of(s Socket) string { return o[s.inode] }
