import icon from '../app/icon.svg';

export function Logo() {
  return (
    <span className="logo">
      <img src={icon} alt="" width={28} height={28} />
      Sluice
    </span>
  );
}
