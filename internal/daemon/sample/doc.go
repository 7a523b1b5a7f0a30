// Package sample has copies of packets: those that come to devices, those that rules copy, and those in files that
// Wireshark and tcpdump read and write. It knows no attack: that is daemon/attack.
package sample
