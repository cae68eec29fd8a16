//! Access control lists on a mount: what setfacl, getfacl, chmod and the makers of files do there
//! is what they do in a directory of the file system below.

use crate::support::{Script, behaves_as_below};

/// Each in an empty directory of its own.
const SCRIPTS: &[Script] = &[
    (
        "lists and chmod",
        "touch f; setfacl -m u:1001:rwx,g:1002:r f; show; chmod 640 f; show; chmod g+w,o+x f; show
         setfacl -m m::- f; show; chmod 4755 f; setfacl -x u:1001 f; show; setfacl -x g:1002 f; show; setfacl -x m f; show
         setfacl -n -m u:7:rw,u:8:r f; show; chmod 0 f; show; setfacl -b f",
    ),
    ("a list of nothing but a mask", "touch f; setfacl -m m::r f; show; chmod 666 f; show; setfacl -b f"),
    ("a list that is a mode", "touch f; chmod 6777 f; setfacl --set u::rw,g::r,o::x f; show; setfacl -b f"),
    (
        "removing lists",
        "mkdir d; setfacl -m u:5:rwx,d:u:6:rx d; touch d/f; show; setfacl -k d; show; setfacl -b d; setfacl -x u:6 d/f; show
         setfattr -x system.posix_acl_access d/f; setfattr -x system.posix_acl_access d/f; setfacl -b d/f; setfacl -k d/f",
    ),
    (
        "inheritance under every umask",
        "mkdir d; setfacl -d -m u:1001:rwx,g::r-x,g:1002:w,o::r d
         for u in 000 022 027 077 777; do umask $u
            touch d/f$u; mkdir d/d$u; mkdir -m 2751 d/m$u; mkfifo d/p$u; mknod d/c$u c 1 3; ln -s f$u d/l$u; ln d/f$u d/h$u
            install -m 751 /bin/true d/i$u; cp d/i$u d/y$u; cp -p d/i$u d/z$u; echo x >d/r$u; echo x >d/f$u
            mkdir -p d/d$u/x/y; touch d/d$u/x/f
         done",
    ),
    (
        "no inheritance under every umask",
        "mkdir d; setfacl -m u:1001:rwx d
         for u in 000 022 027 077 777; do umask $u
            touch d/f$u; mkdir d/d$u; mkdir -m 1777 d/m$u; mkfifo d/p$u; mknod d/c$u c 1 3; ln -s f$u d/l$u; echo x >d/r$u
         done",
    ),
    (
        "a rule that is a mode",
        "mkdir d; setfacl -d --set u::rwx,g::r-x,o::- d; umask 0; touch d/f; mkdir d/d; umask 77; touch d/g; mkdir d/e; touch d/e/h",
    ),
    (
        "a rule with nothing but a mask",
        "mkdir d; setfacl -d --set u::rw,g::rwx,m::rx,o::- d; umask 0; touch d/f; mkdir d/d; mkfifo d/p",
    ),
    (
        "files without a name",
        "mkdir d e; setfacl -d -m u:1001:rw,g::rwx,o::r d
         for u in 000 077; do umask $u; nameless d t$u; nameless e t$u; done",
    ),
    (
        "set-group-id",
        "mkdir d e; chown 1001:1002 d; chown 1001:1001 e; chmod 2775 d e; show
         as 1001 setfacl -m u:1003:rwx d; as 1001 setfacl -m u:1003:rwx e; show
         chmod 2775 d; as 1001 setfacl -d -m u:1003:rwx d; show; with 1001 1002 setfacl -m u:1004:rwx d; show
         chmod 2775 d; setfacl -m u:1005:rwx d; show; as 1001 setfacl -b d; show; chmod 2777 d; as 1003 mkdir d/x; umask 0; as 1003 touch d/y",
    ),
    (
        "set-group-id of files",
        "touch f; chown 1001:1002 f; chmod 6755 f; as 1001 setfacl -m u:5:r f; show; chmod 6755 f; setfacl -m u:6:r f; show
         chown 1003 f; show; chmod 6755 f; chgrp 1004 f; show; chmod 2745 f; as 1003 chmod 2755 f; show",
    ),
    (
        "copies, moves and backups",
        "mkdir d; setfacl -m u:5:rwx,d:u:6:rx,d:g:7:r d; touch d/a d/b; mkdir d/c; setfacl -m u:9:r d/a
         cp -a d e; cp -r d f; cp --preserve=xattr d/a g; tar --acls -cf t.tar d; mkdir x; tar --acls -xf t.tar -C x; rm t.tar
         mv d/a d/c/; mv e/a z; getfacl -R f >list; setfacl -R -b f; show; setfacl --restore=list; rm list; setfacl -R -m u:10:rwX f",
    ),
    (
        "who may change lists",
        "touch f; mkdir d; chown 1001 f d; as 1002 setfacl -m u:1002:rw f; as 1001 setfacl -m u:1002:rw f; as 1002 setfacl -b f
         as 1002 setfacl -d -m u:5:r d; as 1001 setfacl -d -m u:5:r d; as 1001 setfacl -d -m u:5:r f; setfacl -d -m u:5:r f
         ln -s f l; setfacl -P -m u:5:r l; as 1002 chmod 777 f; as 1001 chmod 600 f; as 1002 cat f",
    ),
    (
        "what lists let through",
        "echo text >f; chmod 600 f; for id in 1001 1002 1003; do as $id cat f; done
         setfacl -m u:1001:r,g:1002:rw f; for id in 1001 1002 1003; do as $id cat f; as $id sh -c 'echo more >>f'; done
         chmod g-w f; for id in 1001 1002 1003; do as $id cat f; as $id sh -c 'echo more >>f'; done; cat f
         chmod g=,o=rw f; for id in 1001 1002 1003; do as $id cat f; done; setfacl -m u:1003:- f; as 1003 cat f; as 1004 cat f
         with 1003 1002 cat f; with 1005 1002 cat f; setfacl -m g:1006:rw,m::r f; with 1005 1006 cat f; with 1005 1006 sh -c 'echo x >>f'
         mkdir d; chmod 700 d; touch d/f; as 1001 ls d; setfacl -m u:1001:rx d; as 1001 ls d; as 1001 touch d/g
         setfacl -m u:1001:rwx d; as 1001 touch d/g; as 1001 rm d/f; setfacl -m u:1001:x d; as 1001 ls d; as 1001 cat d/g
         setfacl -b d; as 1001 cat d/g; chmod 1777 d; as 1002 rm d/g",
    ),
    (
        "lists that make no sense",
        "touch f; mkdir d
         for v in 02000000 0200 01000000 0x0200000001000700ffffffff04000500ffffffff20000500ffffffff \
            0x0200000001000700ffffffff04000500ffffffff 0x0200000001000800ffffffff04000500ffffffff20000500ffffffff \
            0x0200000001000700ffffffff020007000500000004000500ffffffff20000500ffffffff \
            0x0200000001000700ffffffff02000700ffffffff04000500ffffffff10000700ffffffff20000500ffffffff \
            0x0200000001000700ffffffff02000700090000000200050005000000040005000000000010000700ffffffff20000500ffffffff \
            0x0200000004000500ffffffff01000700ffffffff20000500ffffffff; do
            for n in access default; do for o in f d; do
                setfattr -n system.posix_acl_$n -v $v $o; echo $v $n $o $?; show
            done; done
         done",
    ),
    (
        "owners change",
        "touch f; setfacl -m u:5:rw,g:6:r f; chown 1001:1002 f; show; as 1001 cat f; as 5 sh -c 'echo x >f'; chmod u-w f; truncate -s 9 f",
    ),
    (
        "many entries",
        "touch f; mkdir d; i=2000; l=u:5:r; while [ $i -lt 2120 ]; do l=$l,u:$i:rx,g:$i:w; i=$((i+1)); done
         setfacl -m $l f; setfacl -d -m $l d; mkdir d/e; touch d/e/f; chmod 770 f; as 2077 head -c1 f; as 2200 head -c1 f",
    ),
];

#[test]
fn lists_behave_as_in_a_directory_of_the_file_system_below() {
    behaves_as_below(
        "lists_behave_as_in_a_directory_of_the_file_system_below",
        SCRIPTS,
    );
}
