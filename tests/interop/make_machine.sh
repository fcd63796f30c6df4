#!/usr/bin/env bash
# make_machine.sh DIRECTORY: a throw-away Linux machine with the real NVMe/TCP peers, from Debian's packages.
# Writes DIRECTORY/vmlinuz and DIRECTORY/initrd.cpio: Debian's cloud kernel, and an initramfs with busybox, nvme-cli,
# mkfs.ext4, fio, and the kernel's nvmet-tcp and nvme-tcp. The machine takes commands on its serial console.
# Needs apt, dpkg, cpio, busybox-static, kmod, e2fsprogs, fio and xz; no privileges. Does nothing when all is there.
# Exit code 3: what it needs cannot be had here; the last line says why.
set -euo pipefail
script=$(sha256sum <"$0")
work=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$work"
exec 9>lock
flock 9  # two test runs at a time make one machine
[ "$(cat complete 2>/dev/null)" = "$script" ] && exit 0
rm -f complete
say() { printf 'make_machine: %s\n' "$*" >&2; }

kernel=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[^ ]*\)/\1/p' | head -1) || true
[ -n "$kernel" ] || { say "apt knows no linux-image-cloud-amd64 (run apt-get update; it is a Debian package)"; exit 3; }
# nvme-cli is unpacked, not installed: its installation would give this machine a host NQN.
needs() { apt-cache depends "$@" 2>/dev/null | sed -n 's/^ *Depends: \(lib[^ ]*\)/\1/p' | grep -vx libc6 || true; }
nvme_library=$(needs nvme-cli | grep -m 1 '^libnvme') || { say "apt knows no nvme-cli (run apt-get update)"; exit 3; }
mapfile -t libraries < <(needs nvme-cli "$nvme_library" | sort -u)
rm -rf kernel tools root ./*.deb
mkdir kernel tools
say "downloading $kernel and nvme-cli with its libraries"
apt-get download -q "$kernel" nvme-cli "${libraries[@]}" >download.log 2>&1 \
  || { cat download.log >&2; say "apt-get could not download $kernel and nvme-cli: is there a network?"; exit 3; }
for package in *.deb; do
  case $package in linux-image-*) dpkg -x "$package" kernel ;; *) dpkg -x "$package" tools ;; esac
done
rm -f ./*.deb download.log
[ -d kernel/lib/modules ] || mv kernel/usr/lib kernel/lib  # Debian 13 has them under /usr
find kernel/lib/modules -name '*.ko.xz' -exec xz -d {} +  # Debian 13 compresses them, and busybox's modprobe may not read that
version=$(basename kernel/lib/modules/*)
cp kernel/boot/vmlinuz-* vmlinuz
depmod -b kernel "$version"

root=$work/root
mkdir -p "$root"/{bin,dev,proc,sys,tmp,mnt,run,etc/nvme,root,lib64,usr/bin,usr/lib/x86_64-linux-gnu}
cp "$(command -v busybox)" "$root/bin/busybox"
for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -sf busybox "$root/bin/$applet"; done

add_module() {
  local line file
  line=$(grep -E "(^|/)$(sed 's/[-_]/[-_]/g' <<<"$1")\.ko:" "kernel/lib/modules/$version/modules.dep" | head -1) || return 0
  for file in ${line%%:*} ${line#*:}; do
    mkdir -p "$root/lib/modules/$version/$(dirname "$file")"
    cp -n "kernel/lib/modules/$version/$file" "$root/lib/modules/$version/$file"
  done
}
for module in virtio_pci virtio_net configfs nvme nvme-tcp nvmet nvmet-tcp ext4 crc32c_generic crc32c-intel brd; do add_module $module; done
cp "kernel/lib/modules/$version"/modules.{builtin,order,builtin.modinfo} "$root/lib/modules/$version/"
depmod -b "$root" "$version"

add_program() {
  local linked
  cp -L "$1" "$root/usr/bin/"
  linked=$(LD_LIBRARY_PATH="$work/tools/usr/lib/x86_64-linux-gnu:$work/tools/lib/x86_64-linux-gnu" ldd "$1")
  ! grep 'not found' <<<"$linked" >&2 || { say "$1 lacks the libraries above"; exit 3; }
  awk '/=> \//{print $3} /^\t\/lib64/{print $1}' <<<"$linked" | while read -r library; do
    case $library in
      /lib64/*) cp -Ln "$library" "$root/lib64/" ;;
      *) cp -Ln "$library" "$root/usr/lib/x86_64-linux-gnu/" ;;
    esac
  done
}
add_program "$(PATH=$PATH:/sbin:/usr/sbin command -v mkfs.ext4)"
add_program tools/usr/sbin/nvme
add_program "$(command -v fio)"
echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
echo 'nqn.2014-08.org.nvmexpress:uuid:11111111-1111-1111-1111-111111111111' >"$root/etc/nvme/hostnqn"
echo '11111111-1111-1111-1111-111111111111' >"$root/etc/nvme/hostid"

cat >"$root/init" <<'INIT'
#!/bin/sh
export PATH=/bin:/usr/bin LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu HOME=/root
mount -t devtmpfs dev /dev; mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t tmpfs tmp /tmp; mount -t tmpfs run /run
for m in virtio_pci virtio_net configfs crc32c-intel crc32c_generic ext4 brd nvme nvme-tcp nvmet nvmet-tcp; do
  case $m in brd) modprobe brd rd_nr=1 rd_size=131072 ;; *) modprobe $m 2>/dev/null ;; esac
done
mount -t configfs configfs /sys/kernel/config
ip link set lo up; ip link set eth0 up; ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
stty -echo </dev/ttyS0
echo "MACHINE-READY $(uname -r)"
# One command a line: "NUMBER COMMAND". Its output, then a line that says how it ended.
while read -r number command; do
  sh -c "$command" </dev/null 2>&1
  echo "MACHINE-DONE $number $?"
done </dev/ttyS0
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet --owner 0:0) >initrd.cpio
rm -rf kernel tools root
printf '%s\n' "$script" >complete
say "made $(du -h initrd.cpio | cut -f1) of initramfs with kernel $version"
