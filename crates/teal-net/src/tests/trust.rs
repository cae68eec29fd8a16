//! The proof of identities on both sides.

use super::*;
use crate::fingerprint::Fingerprint;
use crate::wire::{self, CertifiedKey, Payload, RenewRequest};
use crate::{IdentityError, tls};
use rustls::pki_types::PrivateKeyDer;
use std::os::unix::fs::PermissionsExt as _;
use std::{fs, io};
use teal_types::{ReplicaNo, VolumeId};

#[test]
fn a_machine_that_enrols_is_served_as_who_its_certificate_says() {
    let world = World::default();
    let (one, two) = (world.enrolled(1), world.enrolled(2));
    assert_eq!(
        (one.peer(), two.peer()),
        (
            CertifiedPeer {
                volume: VolumeId::new(3),
                replica: ReplicaNo::new(1)
            },
            CertifiedPeer {
                volume: VolumeId::new(3),
                replica: ReplicaNo::new(2)
            }
        )
    );
    let (first, second) = (world.channel(&one), world.channel(&two));
    for request in [&b""[..], b"x", &[5; 100_000]] {
        assert_eq!(first.call(request, LONG), Ok(echoed(one.peer(), request)));
        assert_eq!(second.call(request, LONG), Ok(echoed(two.peer(), request)));
    }
}

#[test]
fn an_identity_kept_on_the_disk_is_the_same_and_for_its_owner_only() {
    let world = World::default();
    let (identity, dir) = (world.enrolled(1), tempfile::tempdir().unwrap());
    world.enrolled(2).save(dir.path()).unwrap();
    identity.save(dir.path()).unwrap();
    let loaded = ClientIdentity::load(dir.path()).unwrap();
    assert_eq!(
        (loaded.peer(), loaded.server_fingerprint(), loaded.expires()),
        (
            identity.peer(),
            world.identity().fingerprint(),
            identity.expires()
        )
    );
    assert_eq!(
        world.channel(&loaded).call(b"hi", LONG),
        Ok(echoed(identity.peer(), b"hi"))
    );

    let files: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let [file] = &files[..] else {
        panic!("one file, and not {files:?}")
    };
    assert_eq!(
        fs::metadata(file).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    fs::set_permissions(file, fs::Permissions::from_mode(0o640)).unwrap();
    let exposed = ClientIdentity::load(dir.path()).unwrap_err();
    assert!(
        matches!(exposed, IdentityError::Exposed { mode: 0o640, .. }),
        "{exposed}"
    );
}

#[test]
fn a_damaged_identity_is_refused_in_words_and_an_absent_one_is_told_apart() {
    let (world, dir) = (World::default(), tempfile::tempdir().unwrap());
    match ClientIdentity::load(dir.path()) {
        Err(IdentityError::Io { source, .. }) => assert_eq!(source.kind(), io::ErrorKind::NotFound),
        other => panic!("{other:?}"),
    }
    world.enrolled(1).save(dir.path()).unwrap();
    let file = dir.path().join("client.pem");
    let text = fs::read_to_string(&file).unwrap();
    let other = {
        let dir = tempfile::tempdir().unwrap();
        world.enrolled(2).save(dir.path()).unwrap();
        fs::read_to_string(dir.path().join("client.pem")).unwrap()
    };
    let certificate = text.find("-----BEGIN CERTIFICATE").unwrap();
    let mixed = format!(
        "{}{}",
        &text[..certificate],
        &other[other.find("-----BEGIN CERTIFICATE").unwrap()..]
    );
    for damaged in [
        "",
        &text[..60],
        &text[..certificate],
        &text.replace("volume: 3", "volume: -3"),
        &mixed,
        &"x".repeat(1 << 20),
    ] {
        fs::write(&file, damaged).unwrap();
        let error = ClientIdentity::load(dir.path()).unwrap_err();
        assert!(matches!(error, IdentityError::Damaged { .. }), "{error}");
    }
}

#[test]
fn an_authority_is_made_once_and_never_replaced() {
    let world = World::default();
    let print = world.identity().fingerprint();
    assert_eq!(world.identity().fingerprint(), print);
    let file = world.dir.path().join("authority.pem");
    assert_eq!(
        fs::metadata(&file).unwrap().permissions().mode() & 0o7777,
        0o600
    );
    let text = fs::read_to_string(&file).unwrap();

    let stranger = World::default();
    let other = fs::read_to_string(stranger.dir.path().join("authority.pem")).unwrap();
    let certificate = text.find("-----BEGIN CERTIFICATE").unwrap();
    let mixed = format!(
        "{}{}",
        &text[..certificate],
        &other[other.find("-----BEGIN CERTIFICATE").unwrap()..]
    );
    for damaged in [
        "",
        &text[..certificate],
        &mixed,
        &text.replace("created: ", "created: x"),
    ] {
        fs::write(&file, damaged).unwrap();
        let error = ServerIdentity::open(world.dir.path(), &world.clock).unwrap_err();
        assert!(matches!(error, IdentityError::Damaged { .. }), "{error}");
        assert_eq!(fs::read_to_string(&file).unwrap(), damaged);
    }
    fs::write(&file, &text).unwrap();
    assert_eq!(world.identity().fingerprint(), print);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o604)).unwrap();
    let error = ServerIdentity::open(world.dir.path(), &world.clock).unwrap_err();
    assert!(matches!(error, IdentityError::Exposed { .. }), "{error}");
}

#[test]
fn a_server_of_another_fingerprint_gets_no_token() {
    let world = World::default();
    world.give_token(
        "t",
        CertifiedPeer {
            volume: VolumeId::new(1),
            replica: ReplicaNo::new(1),
        },
    );
    let (address, wrong) = (
        world.address().to_string(),
        Fingerprint::of_certificate(b"another"),
    );
    let words = words!(
        crate::enrol(world.runtime(), &address, &wrong, "t", "pc", LONG),
        Certificate
    );
    assert!(
        words.contains("not the expected server") && words.contains(&address),
        "{words}"
    );
    assert!(world.try_enrol("t").is_ok(), "the token is still good");
}

#[test]
fn a_client_s_certificate_does_not_make_a_server() {
    let (world, dir) = (World::default(), tempfile::tempdir().unwrap());
    let (thief, victim) = (world.enrolled(1), world.enrolled(2));
    thief.save(dir.path()).unwrap();
    let file = dir.path().join("client.pem");
    let kept = crate::identity_file::IdentityFile::read(&file, &[]).unwrap();
    let authority =
        crate::identity_file::IdentityFile::read(&world.dir.path().join("authority.pem"), &[])
            .unwrap()
            .certificate;
    let config =
        tls::server_config(&authority, kept.certificate, PrivateKeyDer::from(kept.key)).unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = world
        .runtime()
        .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
        .unwrap();
    let address = listener.local_addr().unwrap();
    world.runtime().spawn(async move {
        let (tcp, _) = listener.accept().await.unwrap();
        acceptor.accept(tcp).await.map(|_| ())
    });
    let words = words!(
        world
            .channel_to(address, &victim, ChannelOptions::default())
            .call(b"secret", LONG),
        Certificate
    );
    assert!(words.contains("not the expected server"), "{words}");
}

#[test]
fn a_wrong_token_and_a_used_one_are_refused_in_the_service_s_words() {
    let world = World::default();
    world.give_token(
        "once",
        CertifiedPeer {
            volume: VolumeId::new(1),
            replica: ReplicaNo::new(1),
        },
    );
    assert!(
        words!(world.try_enrol("twice"), Refused)
            .contains("no such token for a laptop; ask for a new one")
    );
    assert!(world.try_enrol("once").is_ok());
    assert!(words!(world.try_enrol("once"), Refused).contains("no such token"));
    assert!(words!(world.try_enrol(&"x".repeat(300)), Refused).contains("256 bytes"));
    let (address, print) = (world.address().to_string(), world.identity().fingerprint());
    let enrolled = crate::enrol(world.runtime(), &address, &print, "t", "two\nlines", LONG);
    assert!(words!(enrolled, Refused).contains("one line"));
}

#[test]
fn a_certificate_of_another_authority_is_refused() {
    let (world, stranger) = (World::default(), World::default());
    let (dir, foreign) = (tempfile::tempdir().unwrap(), stranger.enrolled(1));
    foreign.save(dir.path()).unwrap();
    let file = dir.path().join("client.pem");
    let text = fs::read_to_string(&file).unwrap();
    let (theirs, ours) = (
        stranger.identity().fingerprint().to_string(),
        world.identity().fingerprint().to_string(),
    );
    fs::write(&file, text.replace(&theirs, &ours)).unwrap();
    let channel = world.channel(&ClientIdentity::load(dir.path()).unwrap());
    let words = words!(channel.call(b"hi", LONG), Certificate);
    assert!(words.contains("enrol this machine again"), "{words}");
    let words = words!(world.channel(&foreign).call(b"hi", LONG), Certificate);
    assert!(words.contains("not the expected server"), "{words}");
    world.assert_well();
}

#[test]
fn a_revoked_machine_hears_why_at_its_next_request() {
    let world = World::default();
    let identity = world.enrolled(7);
    let channel = world.channel(&identity);
    channel.call(b"hi", LONG).unwrap();
    world.service.revoked.lock().insert(identity.peer());
    let words = words!(channel.call(b"hi", LONG), Refused);
    assert_eq!(
        words,
        "the server refuses: replica 7 was removed by Mum at 15:00: ça va"
    );
    let late = teal_types::Timestamp::new(i64::MAX, 0);
    let renewed = world.channel(&identity).renew_if_due(late);
    assert!(words!(renewed, Refused).contains("removed by Mum"));
    world.service.revoked.lock().clear();
    channel.call(b"hi", LONG).unwrap();
}

#[test]
fn without_a_certificate_one_can_do_nothing_but_enrol() {
    let world = World::default();
    let config = tls::client_config(world.identity().fingerprint(), None).unwrap();
    let answers = world.runtime().block_on(async {
        let (address, options) = (world.address().to_string(), ChannelOptions::default());
        let link = crate::channel::connection::ClientConnection::connect(
            &address,
            config,
            Default::default(),
            &options,
        )
        .await
        .unwrap();
        let call = link
            .call_unary::<_, Payload>(wire::CALL, Payload::default(), 1000)
            .await
            .ok()
            .unwrap();
        let renew = link
            .call_unary::<_, CertifiedKey>(wire::RENEW, RenewRequest::default(), 1000)
            .await
            .ok()
            .unwrap();
        let key = link
            .call_unary::<_, CertifiedKey>(wire::ENROL, wire::EnrolRequest::default(), 1000)
            .await
            .ok()
            .unwrap();
        let other = link
            .call_unary::<_, Payload>("/teal.v1.Teal/Other", Payload::default(), 1000)
            .await
            .ok()
            .unwrap();
        (call.result, renew.result, key.result, other.result)
    });
    assert!(words!(answers.0, Certificate).contains("enrol first"));
    assert!(words!(answers.1, Certificate).contains("enrol first"));
    assert!(words!(answers.2, Protocol).contains("no Ed25519 public key"));
    assert!(words!(answers.3, Protocol).contains("no such method"));
}
